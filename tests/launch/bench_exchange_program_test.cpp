// The verb bench exchange through the program: its lines, whose every byte has been checked.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/launch/program.h"

namespace moesaic::test {
namespace {

Arguments bench_exchange(const Arguments& more) {
  return joined({"bench", "exchange", "--layer", "16,72,8,3", "--seconds", "0.002"}, more);
}

std::vector<Json> lines_of_ranks(int ranks, const Arguments& more) {
  const ProgramResult result = run_ranks(ranks, bench_exchange(joined({"-o", "jsonl"}, more)));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  std::vector<Json> lines;
  for (const std::string& line : lines_of(result.out)) lines.push_back(Json::parse(line, "line"));
  return lines;
}

/// A time that was measured, or null where there is nothing to measure.
void expect_time(const Json& line, const std::string& key, bool is_measured) {
  EXPECT_EQ(line.contains(key), is_measured) << key;
  if (is_measured) {
    EXPECT_GT(line.at(key).as_double(), 0) << key;
  }
}

/// `places`: groups of ranks that send each other no messages.
void expect_good_places(const Json& line, int ranks, int places) {
  EXPECT_EQ(line.at("wrong").as_int(), 0);
  EXPECT_EQ(line.at("ranks").as_int(), ranks);
  for (const char* key : {"us", "us_p99", "dispatch_us", "combine_us", "alltoallv_us"}) {
    expect_time(line, key, true);
  }
  expect_time(line, "pingpong_us", ranks > 1);
  expect_time(line, "memcpy_us", ranks > places);
  expect_time(line, "stream_us", places > 1);
  expect_time(line, "dedup", ranks > 1);
  EXPECT_EQ(line.at("bytes_far_expected").as_int() > 0, places > 1);
  // One message there and one back to each other node, and no byte but those of the routing.
  EXPECT_EQ(line.at("messages").as_int(), 2 * (places - 1));
  EXPECT_EQ(line.at("bytes_far").as_int(), line.at("bytes_far_expected").as_int());
  EXPECT_EQ(line.at("bytes_near").as_int() > 0, ranks > places);
}

void expect_good(const Json& line, int ranks, int nodes) {
  expect_good_places(line, ranks, nodes);
  EXPECT_EQ(line.at("nodes").as_int(), nodes);
}

TEST(BenchExchange, ChecksEveryByteOnManyRanks) {
  struct Launch {
    int ranks, ranks_per_node, nodes;
  };
  for (const Launch& launch :
       {Launch{1, 0, 1}, Launch{2, 1, 2}, Launch{3, 0, 1}, Launch{4, 2, 2}}) {
    for (const auto& [routing, count] : {std::pair("both", 4U), std::pair("hot_rank", 2U)}) {
      const std::vector<Json> lines =
          lines_of_ranks(launch.ranks, {"--tokens", "2,9", "--routing", routing, "--check-comm",
                                        "--ranks-per-node", std::to_string(launch.ranks_per_node)});
      EXPECT_EQ(lines.size(), count);
      for (const Json& line : lines) expect_good(line, launch.ranks, launch.nodes);
    }
  }
}

TEST(BenchExchange, CountsBytesBetweenNodesByTheRouting) {
  // The 2 tokens of rank 1 choose 3 of rank 0's 8 experts: 2 rows and 6 results travel. Each of 4
  // messages has a header of 96 bytes and a count, to a multiple of 64.
  const std::vector<Json> lines =
      lines_of_ranks(2, {"--tokens", "2", "--routing", "hot_rank", "--ranks-per-node", "1",
                         "--wire", "exact,bf16,int8"});
  ASSERT_EQ(lines.size(), 3U);
  const std::int64_t int8 = 72 + 4;  // codes and a scale
  const std::int64_t bytes[] = {2 * 72 * 2 + 6 * 72 * 4, 2 * 72 * 2 + 6 * 72 * 2, (2 + 6) * int8};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    expect_good(lines[i], 2, 2);
    EXPECT_EQ(lines[i].at("bytes_far_expected").as_int(), 4 * 128 + bytes[i]);
    EXPECT_DOUBLE_EQ(lines[i].at("dedup").as_double(), 3);
  }
  EXPECT_EQ(lines[1].at("wire").as_string(), "bf16");
}

TEST(BenchExchange, RanksOfANodeThatSendMessagesCountAsNodes) {
  for (const auto& [ranks_per_node, nodes] : {std::pair("0", 1), std::pair("2", 2)}) {
    for (const char* combine : {"ordered", "fast"}) {
      const std::vector<Json> lines = lines_of_ranks(
          4, {"--tokens", "2,9", "--routing", "both", "--transport", "mpi", "--combine", combine,
              "--wire", "exact,int8", "--ranks-per-node", ranks_per_node});
      EXPECT_EQ(lines.size(), 8U);
      const bool adds_on_nodes = nodes > 1 && std::string(combine) == "fast";
      for (const Json& line : lines) {
        EXPECT_EQ(line.at("nodes").as_int(), nodes);
        EXPECT_EQ(line.contains("bytes_far_expected"), !adds_on_nodes);
        if (!adds_on_nodes) expect_good_places(line, 4, 4);
      }
    }
  }
}

TEST(BenchExchange, AddedResultsAreOneARow) {
  // As above, but 2 results, and rows that have weights too.
  const std::vector<Json> lines =
      lines_of_ranks(2, {"--tokens", "2", "--routing", "hot_rank", "--ranks-per-node", "1",
                         "--wire", "exact,int8", "--combine", "fast", "--check-comm"});
  ASSERT_EQ(lines.size(), 2U);
  for (const Json& line : lines) {
    expect_good(line, 2, 2);
    EXPECT_EQ(line.at("combine").as_string(), "fast");
    EXPECT_DOUBLE_EQ(line.at("dedup").as_double(), 3);
  }
  EXPECT_EQ(lines[0].at("bytes_far").as_int(), 3 * 128 + 192 + 2 * 72 * 2 + 2 * 72 * 4);
  EXPECT_EQ(lines[1].at("bytes_far").as_int(), 3 * 128 + 192 + (2 + 2) * (72 + 4));
  const std::vector<Json> on_nodes =
      lines_of_ranks(4, {"--tokens", "9", "--ranks-per-node", "2", "--combine", "fast"});
  for (const Json& line : on_nodes) expect_good(line, 4, 2);
}

TEST(BenchExchange, KeysAreThoseOfThePage) {
  const ProgramResult result =
      run_moesaic(bench_exchange({"--tokens", "3", "--routing", "even", "-o", "csv"}));
  EXPECT_EQ(result.exit_code, 0) << result.text();
  EXPECT_EQ(result.out.substr(0, result.out.find('\n')),
            "ranks,nodes,transport,experts,hidden,topk,wire,routing,tokens,us,us_p99,dispatch_us,"
            "combine_us,messages,bytes_near,bytes_far,bytes_far_expected,dedup,memcpy_us,alltoallv_"
            "us,stream_us,pingpong_us,"
            "wrong");
}

TEST(BenchExchange, WrongOptionsAreToldOnce) {
  const auto failure = [](const Arguments& more) { return run_ranks(2, bench_exchange(more)); };
  expect_failure(failure({"--layer", "8,64,32"}), 2, {"--layer: \"8,64,32\""});
  expect_failure(failure({"--layer", "qwen3-3b"}), 2, {"did you mean qwen3-30b?"});
  expect_failure(failure({"--wire", "exact,fp8"}), 2, {"--wire: \"fp8\"", "bf16, int8"});
  expect_failure(failure({"--routing", "cold"}), 2, {"--routing: \"cold\"", "hot_rank"});
  expect_failure(failure({"--formats", "bf16"}), 2, {"--formats is no option of"});
  expect_failure(failure({"--layer", "1,64,32,1"}), 2, {"2 ranks cannot share 1 experts"});
}

}  // namespace
}  // namespace moesaic::test
