#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

/// A label of a token that is not trained, as transformers has it.
inline constexpr std::int32_t kNotTrained = -100;

/// One text to train on. labels[i] is what tokens[i - 1] is to predict: the token i itself, or
/// kNotTrained; labels[0] counts for nothing.
struct TrainSample {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> labels;

  [[nodiscard]] std::int64_t trained_tokens() const;
};

/// Samples one behind the other.
class SampleSet {
 public:
  /// Both have the same length, at least one.
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels);

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(begins_) - 1; }
  [[nodiscard]] TrainSample operator[](std::int64_t index) const;
  [[nodiscard]] std::int64_t length(std::int64_t index) const {
    return begins_[static_cast<std::size_t>(index + 1)] - begins_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int64_t tokens() const noexcept { return begins_.back(); }
  [[nodiscard]] std::int64_t longest() const;
  [[nodiscard]] std::int64_t trained_tokens() const;
  /// Of all that is in it.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// The memory of a set, for those who move or split it.
  struct Parts {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> labels;
    std::vector<std::int64_t> begins;  // [samples + 1]
  };
  [[nodiscard]] Parts take() &&;
  static SampleSet of(Parts parts);

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> begins_ = {0};
};

}  // namespace moesaic
