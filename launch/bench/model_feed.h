#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/job/runtime.h"
#include "launch/job/session.h"

namespace moesaic {

/// One test of `bench model`: every rank has a sequence of its own.
struct ModelTest {
  std::int64_t n_prompt = 0;  // tokens of a prompt, `batch` of them in one forward pass
  std::int64_t n_gen = 0;     // and then as many one at a time
  std::int64_t batch = 1;

  [[nodiscard]] std::int64_t tokens() const noexcept { return n_prompt + n_gen; }
};

/// Those of --n-prompt and --n-gen, alone and of --prompt-gen, for each --batch-size that makes a
/// difference. Throws Error{usage} if there are none or --prompt-gen is not what it should be.
[[nodiscard]] std::vector<ModelTest> model_tests(const Options& options);

/// The file of --text; none: there is no --text, or it is "random".
[[nodiscard]] std::optional<std::string> text_file(const Options& options);

/// What decides which experts tokens choose.
enum class Fed : std::int8_t { built_in_text, text, random_tokens };
/// As results tell it under `routing`: "built-in text", "text", "random tokens".
[[nodiscard]] std::string_view routing_text(Fed fed) noexcept;

/// Tokens to feed, over and over: of the file of --text, without --text of built_in_text(), which
/// gives way to random ones if the model has no tokenizer.
class FeedTokens {
 public:
  /// Reads the text on rank 0. Throws AgreedError on all ranks if it cannot be taken. Collective.
  FeedTokens(const Runtime& runtime, const OpenModel& model);

  /// On all ranks.
  [[nodiscard]] Fed fed() const noexcept { return fed_; }
  /// `count` of them for a rank, the same each time. Rank 0.
  [[nodiscard]] std::vector<std::int32_t> take(int rank, std::int64_t count) const;

 private:
  std::uint64_t seed_;
  std::int64_t vocab_size_;
  Fed fed_ = Fed::built_in_text;
  std::vector<std::int32_t> text_;  // empty: random
};

/// Seconds of each of --repetitions runs of `test` on all ranks together, after one that does not
/// count. Throws Interrupted on all ranks if one is asked to stop. Collective.
[[nodiscard]] std::vector<double> time_test(const Runtime& runtime, Transformer& transformer,
                                            const FeedTokens& tokens, const ModelTest& test);

}  // namespace moesaic
