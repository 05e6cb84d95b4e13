#include "src/moe/wire_rows.h"

#include <cstring>
#include <utility>

#include "kernels/format.h"

namespace moesaic {
namespace {

constexpr std::int64_t kWordBytes = 4;
static_assert(sizeof(ExpertId) == kWordBytes && sizeof(float) == kWordBytes);

/// Rows start on cache lines.
constexpr std::int64_t kRowAlignment = 64;

}  // namespace

WireRows::WireRows(std::unique_ptr<RowMemory> memory, std::int64_t hidden_bytes, std::int64_t topk,
                   bool has_mark)
    : topk_(topk), num_words_(topk + (has_mark ? 1 : 0)), bytes_(std::move(memory)) {
  resize(0, hidden_bytes);
}

void WireRows::resize(std::int64_t num_tokens, std::int64_t hidden_bytes) {
  hidden_bytes_ = hidden_bytes;
  words_offset_ = round_up(hidden_bytes, kWordBytes);
  row_bytes_ = words_offset_ + num_words_ * kWordBytes;
  stride_bytes_ = round_up(row_bytes_, kRowAlignment);
  bytes_.renew(num_tokens * stride_bytes_);
}

void WireRows::have(Extra extra) {
  num_words_ = topk_;
  if (extra == Extra::key) num_words_ += 2;
  if (extra == Extra::weights) num_words_ += topk_;
}

void WireRows::set_experts(const Routing& routing) {
  set_words(routing, routing.experts.data());
}

void WireRows::set_weights(const Routing& routing) {
  set_words(routing, routing.weights.data());
}

void WireRows::set_extra_weights(const Routing& routing) {
  set_words(routing, routing.weights.data(), topk_);
}

template <typename T>
void WireRows::set_behind(std::int64_t token, T value) {
  std::memcpy(activations(token) + words_offset_ + topk_ * kWordBytes, &value, sizeof(T));
}

void WireRows::set_mark(std::int64_t token, std::int32_t mark) {
  set_behind(token, mark);
}

void WireRows::set_key(std::int64_t token, std::uint64_t key) {
  set_behind(token, key);
}

std::uint64_t WireRows::key_of(const std::byte* words) const {
  std::uint64_t key = 0;
  std::memcpy(&key, words + topk_ * kWordBytes, sizeof(key));
  return key;
}

void WireRows::set_words(const Routing& routing, const void* words, std::int64_t first) {
  const auto* from = static_cast<const std::byte*>(words);
  const std::int64_t offset = words_offset_ + (first + routing.first_word) * kWordBytes;
  const auto bytes = static_cast<std::size_t>(routing.topk * kWordBytes);
  for (std::int64_t token = 0; token < routing.num_tokens; ++token, from += bytes) {
    std::memcpy(activations(token) + offset, from, bytes);
  }
}

}  // namespace moesaic
