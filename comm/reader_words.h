#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moesaic {

/// What stands in shared memory before rows or a message that ranks of a board read: a word for
/// each of them, in which it says how far it is with them. A number only grows; who writes these
/// anew begins with zeros.
class ReaderWords {
 public:
  explicit ReaderWords(std::byte* at) : words_(reinterpret_cast<std::uint64_t*>(at)) {}

  /// A multiple of 64.
  [[nodiscard]] static std::int64_t bytes(int num_ranks) { return (num_ranks + 7) / 8 * 64; }
  void clear(int num_ranks) const noexcept {
    for (int rank = 0; rank < num_ranks; ++rank) word(rank).store(0, std::memory_order_relaxed);
  }
  void set(int rank, std::uint64_t value) const noexcept {
    word(rank).store(value, std::memory_order_release);
  }
  [[nodiscard]] bool has_reached(int rank, std::uint64_t value) const noexcept {
    return word(rank).load(std::memory_order_acquire) >= value;
  }

 private:
  [[nodiscard]] std::atomic_ref<std::uint64_t> word(int rank) const noexcept {
    return std::atomic_ref(words_[rank]);
  }

  std::uint64_t* words_;
};

}  // namespace moesaic
