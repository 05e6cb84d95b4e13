#pragma once

#include <cstdint>
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

/// Tokens to feed: random ones, or those of --text over and over.
class FeedTokens {
 public:
  /// Reads --text on rank 0. Throws AgreedError on all ranks if it cannot be taken. Collective.
  FeedTokens(const Runtime& runtime, const OpenModel& model);

  /// `count` of them for a rank, the same each time. Rank 0.
  [[nodiscard]] std::vector<std::int32_t> take(int rank, std::int64_t count) const;

 private:
  std::uint64_t seed_;
  std::int64_t vocab_size_;
  std::vector<std::int32_t> text_;  // empty: random
};

/// Seconds of each of --repetitions runs of `test` on all ranks together, after one that does not
/// count. Throws Interrupted on all ranks if one is asked to stop. Collective.
[[nodiscard]] std::vector<double> time_test(const Runtime& runtime, Transformer& transformer,
                                            const FeedTokens& tokens, const ModelTest& test);

}  // namespace moesaic
