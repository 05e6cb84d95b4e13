// moesaic plan --job serve, beside what a server says and takes.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/launch/plan_program.h"
#include "tests/parallel/test_machine.h"
#include "tests/serve/http_client.h"

namespace moesaic::test {
namespace {

constexpr double kMebibyte = 1 << 20;

/// What a server of a model says when it is ready and, after a call for each of its places, when it
/// has stopped.
struct ServerTold {
  std::int64_t context = 0;
  double peak_mebibytes = 0;
};

double number_behind(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << words << " in " << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

/// `prompt_tokens`: of each call, all of whose log-probabilities are wanted.
ServerTold serve(const Arguments& options, int calls, std::int64_t prompt_tokens, int ranks = 1) {
  const Arguments all = joined({"serve", "--port", "0", "--log-level", "info"}, options);
  RunningProgram program(ranks == 1 ? moesaic_command(all) : ranks_command(ranks, all));
  const auto is_ready = [&] { return program.err().find(" answers; ") != std::string::npos; };
  EXPECT_TRUE(program.wait_until(is_ready)) << program.err();
  const std::string told = program.err();
  const std::size_t begin = told.find("http://") + 7;
  const std::string address = told.substr(begin, told.find(' ', begin) - begin);
  std::vector<std::thread> clients;
  for (int call_number = 0; call_number < calls; ++call_number) {
    clients.emplace_back([&, call_number] {
      std::string ids;
      for (std::int64_t i = 0; i < prompt_tokens; ++i) {
        ids += fmt::format("{}{}", i == 0 ? "" : ",", (call_number * 991 + i * 7919) % 2000 + 5);
      }
      const HttpReply reply = call(address, "POST", "/v1/completions",
                                   fmt::format("{{\"prompt\": [{}], \"max_tokens\": 4, "
                                               "\"echo\": true, \"logprobs\": 1}}",
                                               ids));
      EXPECT_EQ(reply.status, 200) << reply.body;
    });
  }
  for (std::thread& client : clients) client.join();
  program.send(SIGUSR1);
  const ProgramResult done = program.wait();
  EXPECT_EQ(done.exit_code, 0) << done.text();
  return {.context = static_cast<std::int64_t>(number_behind(told, "context of ")),
          .peak_mebibytes = number_behind(done.err, "memory     ")};
}

class PlannedServer : public Plan {
 protected:
  /// Of a machine file: what a process takes without a model differs from one to the next.
  [[nodiscard]] Json planned(const Arguments& more) const {
    return plan(joined({"-m", kDemo, "--job", "serve", "-t", "1", "--machine", machine_}, more));
  }

  const std::string machine_ = file("machine.json", test_machine().text());
};

TEST_F(PlannedServer, has_places_for_texts_of_the_context) {
  const Json told = planned({"--memory", "8G", "--parallel", "3", "-c", "512"});
  EXPECT_EQ(told.at("sequences").as_int(), 3);
  EXPECT_EQ(told.at("sequence_tokens").as_int(), 512);
  const Json open = planned({"--memory", "8G", "--parallel", "3"});
  EXPECT_EQ(open.at("sequence_tokens").as_int(), 2048) << "what the model was made for";
  const auto cache = [](const Json& plan) { return plan.at("items").at("cache").as_int(); };
  EXPECT_EQ(cache(open), 4 * cache(told));
  EXPECT_EQ(told.at("command").as_string(),
            "moesaic serve --model " + kDemo +
                " --ctx-size 512 --parallel 3 --threads 1 --memory-limit 8G");
  expect_failure(run_moesaic({"plan", "-m", kDemo, "--job", "serve", "--predict", "3"}), 2,
                 {"--predict is no option of moesaic serve (--job serve)"});
}

TEST_F(PlannedServer, without_a_context_takes_what_there_is_memory_for) {
  const Arguments places = {"--parallel", "8"};
  std::int64_t context = 2048;
  std::string memory;
  for (int mebibytes = 120; context == 2048; mebibytes -= 4) {
    memory = fmt::format("{}M", mebibytes);
    context = planned(joined(places, {"--memory", memory})).at("sequence_tokens").as_int();
  }
  ASSERT_GE(context, 1024) << memory;
  const Json told = planned(joined(places, {"--memory", memory}));
  EXPECT_EQ(told.at("largest").at("ctx_size").as_int(), context);
  const auto with = [&](const std::string& limit, const Arguments& more) {
    return run_moesaic(joined({"plan", "-m", kDemo, "--job", "serve", "-t", "1", "--machine",
                               machine_, "--memory", limit},
                              more))
        .exit_code;
  };
  const std::int64_t most = told.at("largest").at("parallel").as_int();
  EXPECT_GE(most, 8) << "as its context would be shorter";
  EXPECT_EQ(with(memory, {"--parallel", fmt::format("{}", most)}), 0);
  EXPECT_EQ(with(memory, {"--parallel", fmt::format("{}", most + 1)}), 4);
  EXPECT_EQ(with(memory, {"--parallel", "8", "-c", fmt::format("{}", context)}), 0);
  EXPECT_EQ(with(memory, {"--parallel", "8", "-c", fmt::format("{}", context + 64)}), 4);
  EXPECT_EQ(with("40M", {"--parallel", "8"}), 4) << "no server starts with less than 1,024";
}

// What is left of a node is shared by the sequences of all its ranks.
TEST_F(PlannedServer, shares_a_node_with_other_ranks) {
  const auto told = [&](const std::string& limit) {
    return planned({"--ranks", "2", "--parallel", "8", "--memory", limit});
  };
  std::int64_t context = 2048;
  std::string limit;
  for (int mebibytes = 240; context == 2048; mebibytes -= 8) {
    limit = fmt::format("{}M", mebibytes);
    context = told(limit).at("sequence_tokens").as_int();
  }
  ASSERT_GT(context, 1024) << limit;
  const Arguments more = {"-m", kDemo, "-t", "1", "--parallel", "8", "--memory-limit", limit};
  const ServerTold server = serve(more, 2, 100, 2);
  EXPECT_LT(server.context, 2048);
  EXPECT_GE(server.context, 1024);
}

TEST_F(PlannedServer, takes_the_memory_that_is_planned) {
  const Arguments options = {"-m", kDemo, "-t", "1", "--parallel", "3", "-c", "2048", "-b", "512"};
  const ServerTold told = serve(options, 3, 2000);
  EXPECT_EQ(told.context, 2048);
  const Json planned =
      plan(joined(options, {"--job", "serve", "--memory", "8G", "--routing", "even"}));
  const double bytes = static_cast<double>(planned.at("per_node_bytes").as_int()) / kMebibyte;
  EXPECT_NEAR(bytes, told.peak_mebibytes, std::max(8.0, 0.05 * told.peak_mebibytes));
}

}  // namespace
}  // namespace moesaic::test
