// What moesaic plan tells of memory and bytes, beside what runs take and count.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/rounding.h"
#include "tests/launch/plan_program.h"

namespace moesaic::test {
namespace {

struct MemoryCase {
  SparseModel model;
  std::string expert_format;
  int ranks;
  int nodes;
  int parallel;
  std::int64_t prompt_tokens = 100;
  int batch_size = 512;
  int rounds = 1;  // of so many prompts, one after the other; half-batches take five to be tried
  std::string transport = "auto";
};

/// tests/run.sh --all
bool is_thorough() {
  return std::getenv("TEST_PLANS") != nullptr;
}

std::vector<MemoryCase> memory_cases() {
  return {
      {{.family = "qwen3_moe"}, "auto", 1, 1, 4},
      {{.family = "qwen3_moe", .layers = 3}, "int8", 2, 1, 8},
      {{.family = "mixtral"}, "int4_group", 4, 1, 2},
      {{.family = "olmoe", .vocab = 30000}, "auto", 2, 2, 16, 100, 1024},
      {{.family = "granitemoe", .topk = 4}, "int8", 4, 2, 4, 100, 64},
      {{.family = "olmoe"}, "auto", 2, 2, 8, 500, 4000, 5},  // exchanges are what takes most
      {{.family = "qwen3_moe"}, "int4_group", 2, 2, 4, 500},
      {{.family = "olmoe"}, "auto", 2, 1, 8, 500, 4000, 1, "mpi"},
      {{.family = "mixtral", .hidden = 768, .experts = 8, .width = 2048}, "auto", 2, 1, 4, 100},
      {{.family = "mixtral", .hidden = 768, .experts = 8, .width = 2048}, "int8", 1, 1, 1, 4000},
      {{.family = "olmoe", .vocab = 30000}, "int8", 1, 1, 2, 1000},
      {{.family = "olmoe", .vocab = 30000}, "int4_group", 4, 1, 4, 240, 256},
      {{.family = "granitemoe", .experts = 32, .topk = 4}, "auto", 4, 1, 4, 100, 64},
      {{.family = "granitemoe", .experts = 32, .topk = 4}, "int4_group", 1, 1, 2, 2000}};
}

TEST_F(Plan, A_nodes_memory_is_what_is_planned) {
  const double share = is_thorough() ? 0.05 : 0.1;  // elsewhere MPI and kernels take others
  for (MemoryCase c : memory_cases()) {
    c.model.routes = true;
    const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
    const Arguments options = {"-m",
                               model(c.model),
                               "-t",
                               "1",
                               "-n",
                               "20",
                               "-b",
                               number(c.batch_size),
                               "--expert-format",
                               c.expert_format,
                               "--parallel",
                               number(c.parallel),
                               "--ranks-per-node",
                               number(c.ranks / c.nodes),
                               "--transport",
                               c.transport,
                               "--half-batches",
                               c.rounds > 1 ? "auto" : "off"};
    const Json planned =
        plan(joined({"--ranks", number(c.ranks), "--prompt-tokens", number(c.prompt_tokens),
                     "--memory", "64G", "--routing", "even"},
                    options));
    const Json seen = generate(
        c.ranks, {c.rounds * c.ranks * c.parallel, c.prompt_tokens, c.model.vocab}, options);
    const auto bytes = static_cast<double>(planned.at("per_node_bytes").as_int());
    const auto peak = static_cast<double>(seen.at("node_peak_bytes").as_int());
    EXPECT_NEAR(bytes, peak, std::max(share * peak, 8.0 * (1 << 20)))  // docs/scaling.md: seen
        << c.model.family << " " << c.expert_format << ", " << c.ranks
        << " ranks: " << bytes / 0x1p20 << " MiB planned, " << peak / 0x1p20;
    EXPECT_GT(planned.at("items").at("expert").as_int(), planned.at("items").at("cache").as_int());
  }
}

TEST_F(Plan, Bytes_that_move_are_those_that_runs_count) {
  const SparseModel sizes{.family = "qwen3_moe", .layers = 2, .hidden = 128, .width = 64};
  const std::string path = model(sizes);  // all tokens choose experts 0 and 1
  const std::string routing = file("routing.json", R"({"experts_per_token": 2, "rows": [)"
                                                   R"([1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0],)"
                                                   R"([1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]})");
  const auto rows_sent = [&](const std::string& placement, double results,
                             const std::string& combine = "ordered") {
    const Arguments how = {"-m", path, "-n", "5", "--placement", placement, "--combine", combine};
    const Json seen = generate(2, {.count = 2}, joined({"-t", "1"}, how));
    const Json traffic = plan(joined({"--ranks", "2", "--routing", routing}, how)).at("traffic");
    const auto tokens = static_cast<double>(seen.at("prompt").at("tokens").as_int() +
                                            seen.at("generation").at("tokens").as_int());
    const double bytes =
        traffic.at("dispatch_bytes").as_double() + traffic.at("combine_bytes").as_double();
    EXPECT_NEAR(tokens * 2 * bytes, seen.at("bytes_sent").as_double(), 1);
    EXPECT_EQ(traffic.at("results").as_double(), results);
    const double added = (1 - results) * tokens * 2;
    EXPECT_EQ(static_cast<double>(seen.at("results_saved").as_int()), added);
    EXPECT_EQ(static_cast<double>(seen.at("result_bytes_saved").as_int()), added * 128 * 4);
    return traffic.at("rows").as_double();
  };
  EXPECT_EQ(rows_sent("contiguous", 1), 0.5);  // to rank 0, which has both
  EXPECT_EQ(rows_sent("contiguous", 0.5, "fast"), 0.5);
  EXPECT_EQ(rows_sent(routing, 1), 1);
  EXPECT_EQ(rows_sent(routing, 1, "fast"), 1);
}

struct BytesCase {
  SparseModel model;
  std::string expert_format;
  int ranks;
  int nodes;
  std::int64_t text_bytes;
  Arguments how = {};
  double error = 0;
};

/// The first seven by default.
std::vector<BytesCase> bytes_cases() {
  const SparseModel qwen3{.family = "qwen3_moe", .layers = 3, .hidden = 128, .width = 64};
  const SparseModel mixtral{.family = "mixtral", .hidden = 256, .experts = 8, .width = 128};
  const SparseModel olmoe{.family = "olmoe", .layers = 10, .hidden = 128, .width = 64};
  const SparseModel granite{.family = "granitemoe", .hidden = 192, .width = 64, .topk = 4};
  std::vector<BytesCase> cases = {
      {qwen3, "int4_group", 3, 3, 900},
      {mixtral, "auto", 4, 2, 12000},
      {olmoe, "auto", 2, 2, 2000, {"--wire", "int8"}},
      {olmoe, "auto", 4, 2, 2000, {"--combine", "fast"}, 1e-3},  // sums, so choices, may differ
      {granite, "int8", 4, 2, 8000, {"--placement", "round_robin"}},
      {granite, "auto", 3, 1, 2000, {"--wire", "int8", "--placement", "round_robin"}},
      {qwen3, "auto", 2, 1, 400, {"--transport", "mpi"}},
      {qwen3, "auto", 1, 1, 400},
      {qwen3, "auto", 2, 1, 400},
      {qwen3, "int8", 2, 2, 6000},
      {mixtral, "int8", 3, 2, 3000},
      {mixtral, "auto", 2, 2, 40},
      {olmoe, "int4_group", 4, 4, 4000},
      {granite, "int4_group", 2, 1, 1000}};
  if (!is_thorough()) cases.resize(7);
  return cases;
}

/// The number in "the model's choices for 1138 tokens of FILE".
std::int64_t tokens_told(const Json& plan) {
  const std::string source = plan.at("sources").at("routing").as_string();
  return std::stoll(source.substr(source.find("for ") + 4));
}

class PlannedBytes : public Plan {
 protected:
  /// A pass over a text, of which each rank has a part.
  void check(const BytesCase& c) {
    SparseModel sizes = c.model;
    sizes.computes = true;
    const std::string whole = read_text(kData + "/demo-heldout.txt");
    const Arguments options =
        joined({"-m", model(sizes), "-t", "1", "--expert-format", c.expert_format, "--text",
                file("text.txt", whole.substr(0, static_cast<std::size_t>(c.text_bytes))),
                "--ranks-per-node", fmt::format("{}", divide_up(c.ranks, c.nodes))},
               c.how);
    const std::string ranks = fmt::format("{}", c.ranks);
    const Arguments job = joined({"--ranks", ranks, "--routing", "model"}, options);
    const std::int64_t part = tokens_told(plan(job)) / c.ranks;
    const std::string tokens = fmt::format("{}", part);
    const Json planned =
        plan(joined(job, {"-c", tokens, "--prompt-tokens", tokens, "-n", "0", "-b", tokens}));
    const ProgramResult run = run_ranks(
        c.ranks, joined({"study", "point", "--job", "prompt", "-p", tokens, "-b", tokens,
                         "--sequences", ranks, "--repetitions", "1", "--half-batches", "off"},
                        options));
    ASSERT_EQ(run.exit_code, 0) << run.text();
    SCOPED_TRACE(fmt::format("{} {}, {} ranks, {} nodes, {} tokens a rank", sizes.family,
                             c.expert_format, c.ranks, c.nodes, tokens));
    compare(planned.at("traffic"), last_line(run), c, static_cast<double>(part));
  }

 private:
  static void compare(const Json& traffic, const Json& seen, const BytesCase& c, double tokens) {
    const double steps = c.ranks * static_cast<double>(c.model.layers);
    const auto told = [&](const std::string& key) { return steps * traffic.at(key).as_double(); };
    const auto expect_equal = [&](double planned, const std::string& counted) {
      const double expected = seen.at(counted).as_double();
      EXPECT_NEAR(planned, expected, std::max(0.5, c.error * expected)) << counted;
    };
    const double bytes = tokens * (told("dispatch_bytes") + told("combine_bytes"));
    const double far = tokens * told("inter_node_bytes");
    expect_equal(far, "inter_bytes");
    expect_equal(bytes - far, "intra_bytes");
    expect_equal(told("messages"), "messages");
    EXPECT_EQ(bytes > 0, c.ranks > 1);
  }
};

TEST_F(PlannedBytes, Of_a_text_are_those_that_a_pass_over_it_counts) {
  for (const BytesCase& c : bytes_cases()) check(c);
}

}  // namespace
}  // namespace moesaic::test
