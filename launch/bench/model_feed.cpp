#include "launch/bench/model_feed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <span>

#include "base/error.h"
#include "base/split.h"
#include "launch/bench/built_in_text.h"
#include "launch/bench/roofs.h"
#include "launch/input/token_prompts.h"
#include "launch/job/agreement.h"
#include "src/generate/step_engine.h"

namespace moesaic {
namespace {

std::int64_t parse_count(std::string_view text, std::string_view whole) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  require(error == std::errc() && stop == end && value >= 1 && value <= kMostBenchTokens,
          ErrorKind::usage,
          "--prompt-gen: \"{}\" is not two numbers of tokens from 1 to {}, such as 512,64", whole,
          kMostBenchTokens);
  return value;
}

/// "512,64".
ModelTest parse_pair(const std::string& text) {
  const std::vector<std::string_view> parts = split_list(text);
  return {.n_prompt = parse_count(parts.front(), text),
          .n_gen = parse_count(parts.size() == 2 ? parts.back() : "", text)};
}

/// A request for every rank, which the schedule gives to rank 0, 1, ... in turn. Tokens that are
/// fed one at a time are those that the model chooses after a prompt; without one, given ones.
void run_test(const Runtime& runtime, StepEngine& engine, const FeedTokens& tokens,
              const ModelTest& test) {
  const bool chooses = test.n_prompt > 0 && test.n_gen > 0;
  for (int rank = 0; engine.submits() && rank < runtime.world().size(); ++rank) {
    Request request;
    request.tokens = tokens.take(rank, chooses ? test.n_prompt : test.tokens());
    request.logits_from = test.n_prompt > 0 ? test.n_prompt - 1 : 0;
    request.sampling.temperature = 0;
    if (chooses) request.max_new_tokens = test.n_gen + 1;  // the last one is not fed
    engine.submit(std::move(request));
  }
  do {
    engine.step();
  } while (engine.under_way());
}

}  // namespace

std::vector<ModelTest> model_tests(const Options& options) {
  std::vector<ModelTest> tests;
  const auto add = [&](const ModelTest& test) {
    if (test.tokens() > 0) tests.push_back(test);
  };
  for (const std::int64_t batch : options.batch_sizes) {
    for (const std::int64_t n : options.n_prompt) add({.n_prompt = n, .batch = batch});
    // One token at a time: all sizes are the same.
    const bool is_first = batch == options.batch_sizes.front();
    for (const std::int64_t n : options.n_gen) add({.n_gen = is_first ? n : 0, .batch = batch});
    for (const std::string& pair : options.prompt_and_gen) {
      ModelTest test = parse_pair(pair);
      test.batch = batch;
      add(test);
    }
  }
  require(!tests.empty(), ErrorKind::usage,
          "nothing to do: --n-prompt and --n-gen are both 0, and there is no -pg");
  return tests;
}

std::optional<std::string> text_file(const Options& options) {
  return options.bench_text == "random" ? std::nullopt : options.bench_text;
}

std::string_view routing_text(Fed fed) noexcept {
  constexpr std::array<std::string_view, 3> kTexts = {"built-in text", "text", "random tokens"};
  return kTexts[static_cast<std::size_t>(fed)];
}

FeedTokens::FeedTokens(const Runtime& runtime, const OpenModel& model)
    : seed_(static_cast<std::uint64_t>(runtime.options().seed)),
      vocab_size_(model.config.vocab_size) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    if (const std::optional<std::string> file = text_file(options)) {
      fed_ = Fed::text;
      text_ = encode_file(model, *file);
    } else if (options.bench_text || !has_tokenizer(model.files)) {
      fed_ = Fed::random_tokens;
    } else {
      text_ = encode_text(Tokenizer::from_directory(model.files.directory()), model.config,
                          built_in_text(), "the benchmark");
    }
  });
  runtime.world().broadcast(std::as_writable_bytes(std::span(&fed_, 1)), 0);
  if (fed_ == Fed::random_tokens && !options.bench_text) {
    runtime.log().once(
        LogLevel::warning,
        "{} has no tokenizer.json: random tokens are fed, which choose other experts "
        "than texts do",
        options.model);
  }
}

std::vector<std::int32_t> FeedTokens::take(int rank, std::int64_t count) const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  if (!text_.empty()) {  // ranks get parts that follow on one another
    std::size_t next = static_cast<std::size_t>(rank) * tokens.size();
    for (std::int32_t& token : tokens) token = text_[next++ % text_.size()];
    return tokens;
  }
  std::mt19937_64 random(seed_ * 1000003 + static_cast<std::uint64_t>(rank));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab_size_));
  }
  return tokens;
}

std::vector<double> time_test(const Runtime& runtime, Transformer& transformer,
                              const FeedTokens& tokens, const ModelTest& test) {
  StepEngine engine(
      transformer, runtime.world(),
      {.batch_tokens = test.n_prompt > 0 ? test.batch : 1, .parallel = 1, .share_prefixes = false});
  const auto run = [&] { run_test(runtime, engine, tokens, test); };
  run();
  std::vector<double> seconds;
  for (std::int64_t i = 0; i < runtime.options().repetitions; ++i) {
    runtime.leave_if_stop_wanted();
    seconds.push_back(time_together(runtime.world(), run));
  }
  return seconds;
}

}  // namespace moesaic
