#include "src/moe/wire_rows.h"

#include <cstring>

#include "kernels/format.h"

namespace moesaic {
namespace {

constexpr std::int64_t kWordBytes = 4;
static_assert(sizeof(ExpertId) == kWordBytes && sizeof(float) == kWordBytes);

/// Rows start on cache lines.
constexpr std::int64_t kRowAlignment = 64;

}  // namespace

WireRows::WireRows(std::int64_t hidden_bytes, std::int64_t topk, bool has_mark)
    : hidden_bytes_(hidden_bytes),
      topk_(topk),
      words_offset_(round_up(hidden_bytes, kWordBytes)),
      row_bytes_(words_offset_ + (topk + (has_mark ? 1 : 0)) * kWordBytes),
      stride_bytes_(round_up(row_bytes_, kRowAlignment)) {}

void WireRows::resize(std::int64_t num_tokens) {
  bytes_.reserve(num_tokens * stride_bytes_);
}

void WireRows::set_experts(const Routing& routing) {
  set_words(routing.num_tokens, routing.experts.data());
}

void WireRows::set_weights(const Routing& routing) {
  set_words(routing.num_tokens, routing.weights.data());
}

void WireRows::set_mark(std::int64_t token, std::int32_t mark) {
  std::memcpy(activations(token) + words_offset_ + topk_ * kWordBytes, &mark, kWordBytes);
}

void WireRows::set_words(std::int64_t num_tokens, const void* words) {
  const auto* from = static_cast<const std::byte*>(words);
  const auto bytes = static_cast<std::size_t>(topk_ * kWordBytes);
  for (std::int64_t token = 0; token < num_tokens; ++token, from += bytes) {
    std::memcpy(activations(token) + words_offset_, from, bytes);
  }
}

}  // namespace moesaic
