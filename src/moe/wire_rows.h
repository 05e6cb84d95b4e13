#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/row_memory.h"
#include "src/moe/routing.h"

namespace moesaic {

/// This rank's token rows in the form that travels: the activations, then a 4-byte word for each of
/// the token's choices: forward its expert's id, backward its routing weight, and perhaps more. A
/// row is written once and read where it lies, here or, after the exchange, at its experts.
class WireRows {
 public:
  /// `memory`: null where sizes alone are wanted. `hidden_bytes`: bytes of one row's activations.
  WireRows(std::unique_ptr<RowMemory> memory, std::int64_t hidden_bytes, std::int64_t topk,
           bool has_mark = false);

  /// Makes room for as many rows, of so many bytes of activations; those before may still be read
  /// by other ranks.
  void resize(std::int64_t num_tokens, std::int64_t hidden_bytes);
  void resize(std::int64_t num_tokens) { resize(num_tokens, hidden_bytes_); }
  /// What rows have behind their experts.
  enum class Extra { none, key, weights };
  /// From the next resize() on.
  void have(Extra extra);
  /// From the routing's first word on, here and below.
  void set_experts(const Routing& routing);
  void set_weights(const Routing& routing);
  void set_extra_weights(const Routing& routing);
  void set_mark(std::int64_t token, std::int32_t mark);
  void set_key(std::int64_t token, std::uint64_t key);

  [[nodiscard]] std::byte* activations(std::int64_t token) const {
    return bytes_.data() + token * stride_bytes_;
  }
  /// The words of an own row. They may lie elsewhere than the activations once they have travelled:
  /// what follows is for own and received ones.
  [[nodiscard]] const std::byte* words(std::int64_t token) const {
    return activations(token) + words_offset_;
  }
  [[nodiscard]] static const std::int32_t* experts_of(const std::byte* words) {
    return reinterpret_cast<const std::int32_t*>(words);
  }
  [[nodiscard]] static const float* weights_of(const std::byte* words) {
    return reinterpret_cast<const float*>(words);
  }
  [[nodiscard]] std::int32_t mark_of(const std::byte* words) const {
    return experts_of(words)[topk_];
  }
  [[nodiscard]] std::uint64_t key_of(const std::byte* words) const;
  /// [topk]
  [[nodiscard]] const float* extra_weights_of(const std::byte* words) const {
    return weights_of(words) + topk_;
  }
  [[nodiscard]] std::int64_t words_bytes() const noexcept { return row_bytes_ - words_offset_; }
  [[nodiscard]] std::int64_t activation_bytes() const noexcept { return hidden_bytes_; }
  [[nodiscard]] std::int64_t row_bytes() const noexcept { return row_bytes_; }
  [[nodiscard]] std::int64_t stride_bytes() const noexcept { return stride_bytes_; }
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_.data(); }

 private:
  /// `first`: where those of all choices begin.
  void set_words(const Routing& routing, const void* words, std::int64_t first = 0);
  template <typename T>
  void set_behind(std::int64_t token, T value);

  std::int64_t topk_;
  std::int64_t num_words_;
  std::int64_t hidden_bytes_ = 0;
  std::int64_t words_offset_ = 0;
  std::int64_t row_bytes_ = 0;
  std::int64_t stride_bytes_ = 0;
  SentRows<std::byte> bytes_;
};

}  // namespace moesaic
