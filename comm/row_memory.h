#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace moesaic {

/// Memory for a matrix of rows to send (Communicator::make_row_memory): ranks of the node read them
/// where they lie, so that nothing is copied. Must not outlive its communicator.
class RowMemory {
 public:
  virtual ~RowMemory() = default;
  /// At least `bytes` > 0, aligned to 64, which nobody reads: other memory than the last time as
  /// long as a rank still does. What was there may be lost. Throws Error{resource}.
  [[nodiscard]] virtual std::byte* renew(std::int64_t bytes) = 0;
};

/// Elements of a trivial type in such a memory.
template <typename T>
class SentRows {
 public:
  /// `memory`: null if there are never any.
  explicit SentRows(std::unique_ptr<RowMemory> memory) : memory_(std::move(memory)) {}

  /// Room for `count` elements, whose values mean nothing; what was there may still be read.
  void renew(std::int64_t count) {
    data_ = nullptr;  // in case there is no memory
    if (count == 0) return;
    data_ = reinterpret_cast<T*>(memory_->renew(count * std::int64_t{sizeof(T)}));
  }
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  std::unique_ptr<RowMemory> memory_;
  T* data_ = nullptr;
};

}  // namespace moesaic
