// The demo model against transformers (tests/data/demo-golden.json) and against its own bits.

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/json.h"
#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "src/generate/generator.h"
#include "src/generate/scorer.h"
#include "src/generate/text_model.h"
#include "src/tokenizer/tokenizer.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const std::string kData = MOESAIC_TEST_DATA;
const std::string kModel = kData + "/demo-model";

std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  EXPECT_TRUE(stream.good()) << path;
  return text.str();
}

/// The first `count` tokens of the held-out text.
std::vector<std::int32_t> held_out_tokens(std::size_t count) {
  auto tokens = Tokenizer::from_directory(kModel).encode(read_file(kData + "/demo-heldout.txt"));
  tokens.resize(count);
  return tokens;
}

double held_out_loss(const EngineSetup& setup, const std::vector<std::int32_t>& tokens) {
  double loss = 0;
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(setup, world);
    const ScoreDocument document{.tokens = tokens,
                                 .windows = cut_windows(std::ssize(tokens), 2048, 1024)};
    loss = score(engine.transformer(), world, {&document, 1}, {}, {}).total.mean_loss();
  });
  return loss;
}

TEST(DemoModel, held_out_loss_is_that_of_transformers) {
  const Json golden = Json::read_file(kData + "/demo-golden.json").at("held_out");
  const auto tokens = held_out_tokens(static_cast<std::size_t>(golden.at("tokens").as_int()));
  const Json first_ids = golden.at("first_ids");
  for (std::int64_t i = 0; i < first_ids.size(); ++i) {
    ASSERT_EQ(tokens[static_cast<std::size_t>(i)], first_ids.at(i).as_int());
  }
  const double expected = golden.at("mean_cross_entropy").as_double();
  EngineSetup setup{.directory = kModel, .isa = supported_isas().back(), .threads = 2};
  EXPECT_NEAR(held_out_loss(setup, tokens), expected, 2e-3);
  setup.precision = Precision::f32;
  EXPECT_NEAR(held_out_loss(setup, tokens), expected, 1e-5);
}

TEST(DemoModel, held_out_loss_with_deferred_experts_is_that_of_the_definition) {
  const auto tokens = held_out_tokens(1024);
  EngineSetup setup{.directory = kModel,
                    .precision = Precision::f32,
                    .isa = supported_isas().back(),
                    .threads = 2};
  // By an implementation in f64 that adds the deferred sums to the next layer's output.
  for (const double expected : {3.3022, 3.3076, 3.3170, 3.6307}) {
    ++setup.moe.defer;
    EXPECT_NEAR(held_out_loss(setup, tokens), expected, 2e-3) << setup.moe.defer << " deferred";
  }
  ++setup.moe.defer;
  EXPECT_THROW((void)held_out_loss(setup, tokens), Error);
}

TEST(DemoModel, greedy_continuations_are_those_of_transformers) {
  const Json prompts = Json::read_file(kData + "/demo-golden.json").at("prompts");
  const Tokenizer tokenizer = Tokenizer::from_directory(kModel);
  std::vector<std::vector<std::int32_t>> inputs;
  for (std::int64_t i = 0; i < prompts.size(); ++i) {
    inputs.push_back(tokenizer.encode(prompts.at(i).at("prompt").as_string()));
    EXPECT_EQ(std::ssize(inputs.back()), prompts.at(i).at("ids").size());
  }
  GenerateOptions options;
  options.max_new_tokens = 32;
  options.sampling.temperature = 0;
  options.stop_tokens = read_model_config(kModel).eos_token_ids;
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    for (const Isa isa : supported_isas()) {
      const EngineSetup setup{
          .directory = kModel, .precision = precision, .isa = isa, .threads = 2};
      run_thread_ranks(2, [&](Communicator& world) {
        TestEngine engine(setup, world);
        const GenerateResult result = generate(engine.transformer(), world, inputs, options, {});
        for (std::int64_t i = 0; world.rank() == 0 && i < prompts.size(); ++i) {
          const Json expected = prompts.at(i).at("greedy_ids");
          std::vector<std::int32_t> ids;
          for (std::int64_t k = 0; k < expected.size(); ++k) {
            ids.push_back(static_cast<std::int32_t>(expected.at(k).as_int()));
          }
          EXPECT_EQ(result.completions[static_cast<std::size_t>(i)].tokens, ids)
              << "prompt " << i << ", " << isa_name(isa);
        }
      });
    }
  }
}

/// FNV-1a, 64 bits.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
  }
  return hash;
}

std::uint64_t logits_checksum(int ranks, const EngineSetup& setup,
                              const std::vector<std::int32_t>& tokens, std::int64_t chunk) {
  std::vector<float> logits;
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(setup, world);
    const ScoreEvents events{
        .on_tokens = {}, .on_document = {}, .on_logits = [&](const LogitsRows& rows) {
          const MatrixView<const float>& part = rows.logits;
          if (world.rank() != 0) return;
          logits.insert(logits.end(), part.data(), part.data() + part.rows() * part.cols());
        }};
    const ScoreDocument document{.tokens = tokens,
                                 .windows = cut_windows(std::ssize(tokens), 2048, 1024)};
    (void)score(engine.transformer(), world, {&document, 1}, {.batch_tokens = chunk}, events);
  });
  return checksum(std::as_bytes(std::span(logits)));
}

/// Of the held-out text's beginning: "bf16", or "fp32", and how many tokens.
std::uint64_t committed_checksum(const std::string& precision, std::size_t tokens) {
  std::istringstream lines(read_file(kData + "/demo-portable-checksums.txt"));
  std::string name;
  std::string sum;
  std::size_t count = 0;
  while (lines >> name >> count >> sum) {
    if (name == precision && count == tokens) return std::stoull(sum, nullptr, 16);
  }
  ADD_FAILURE() << precision << " " << tokens;
  return 0;
}

TEST(DemoModel, portable_logits_have_the_committed_checksum) {
  const std::uint64_t expected = committed_checksum("bf16", 300);
  const auto tokens = held_out_tokens(300);
  const auto check = [&](int ranks, const EngineSetup& setup, std::int64_t chunk) {
    EXPECT_EQ(logits_checksum(ranks, setup, tokens, chunk), expected)
        << isa_name(setup.isa) << ", " << ranks << " ranks";
  };
  for (const Isa isa : tile_order_isas()) check(1, {.directory = kModel, .isa = isa}, 512);
  for (const int ranks : {2, 3, 4, 8, 16}) {
    check(ranks, {.directory = kModel, .isa = tile_order_isas().back(), .threads = 2}, 64);
  }
  check(8, {.directory = kModel, .isa = tile_order_isas().back(), .expert_replicas = 4}, 31);
}

/// The keys of the last tokens are in two segments.
TEST(DemoModel, portable_logits_of_long_texts_have_it_too) {
  const auto tokens = held_out_tokens(1100);
  for (const Isa isa : {tile_order_isas().front(), tile_order_isas().back()}) {
    const EngineSetup setup{.directory = kModel, .isa = isa, .threads = 2};
    EXPECT_EQ(logits_checksum(1, setup, tokens, 512), committed_checksum("bf16", 1100))
        << isa_name(isa);
  }
}

TEST(DemoModel, logits_in_fp32_have_it_too) {
  const auto tokens = held_out_tokens(300);
  for (const Isa isa : tile_order_isas()) {
    const EngineSetup setup{
        .directory = kModel, .precision = Precision::f32, .isa = isa, .threads = 2};
    EXPECT_EQ(logits_checksum(1, setup, tokens, 512), committed_checksum("fp32", 300))
        << isa_name(isa);
  }
}

/// Counts how often a rank that computes looks after what is under way.
class CountingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void progress() override {
    ++calls;
    ForwardingCommunicator::progress();
  }
  std::int64_t calls = 0;
};

TEST(DemoModel, the_library_class_moves_rows_on_while_it_computes) {
  run_thread_ranks(2, [&](Communicator& world) {
    CountingCommunicator counting(world);
    TextModel model(counting, kModel);
    const std::vector<std::string> prompts = {"In the beginning"};
    counting.calls = 0;  // loading has looked after it, too
    (void)model.continue_texts(prompts, {.max_new_tokens = 60});
    EXPECT_GT(counting.calls, 0) << "in a run that takes many of kProgressEvery";
  });
}

TEST(DemoModel, the_library_class_samples_as_it_is_told) {
  run_thread_ranks(2, [&](Communicator& world) {
    TextModel model(world, kModel);
    const std::vector<std::string> prompts = {"In the beginning"};
    const auto distinct = [&](const ContinueOptions& options) {
      const auto texts = model.continue_texts(prompts, options);
      if (world.rank() != 0) return std::pair<std::size_t, std::size_t>();
      const auto& tokens = texts.at(0).tokens;
      return std::pair(std::set(tokens.begin(), tokens.end()).size(), tokens.size());
    };
    const auto [free, all] = distinct({.max_new_tokens = 60, .temperature = 0});
    const auto [penalized, as_many] =
        distinct({.max_new_tokens = 60, .temperature = 0, .presence_penalty = 100});
    const auto [min_p, of_them] =
        distinct({.max_new_tokens = 60, .temperature = 1.5, .top_k = 0, .top_p = 1, .min_p = 1});
    if (world.rank() != 0) return;
    EXPECT_EQ(all, 60U);
    EXPECT_LT(free, all);
    EXPECT_EQ(penalized, as_many);
    EXPECT_EQ(std::pair(min_p, of_them), std::pair(free, all)) << "min-p 1 is greedy";
  });
}

}  // namespace
}  // namespace moesaic
