#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/row_buffers.h"
#include "comm/row_memory.h"

namespace moesaic {

class RowPart;

/// A piece of the memory that a rank sends rows from.
struct RowBlock {
  std::size_t slot = 0;  // of its RowBuffers
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::vector<const RowPart*> readers{};  // exchanges whose receivers may still read it

  [[nodiscard]] bool holds(const std::byte* at) const noexcept {
    return data <= at && at < data + bytes;
  }
};

/// The memory of one transport's rows: its buffers, of which some have rows to send (RowMemory).
class RowPool {
 public:
  explicit RowPool(std::unique_ptr<RowBuffers> buffers) : buffers_(std::move(buffers)) {}

  [[nodiscard]] RowBuffers& buffers() const noexcept { return *buffers_; }
  /// Must not outlive this.
  [[nodiscard]] std::unique_ptr<RowMemory> make_memory();
  /// The block that holds the byte `at`, or null: then it is no memory of this pool.
  [[nodiscard]] RowBlock* find(const std::byte* at) noexcept;

 private:
  class Memory;
  /// One that nobody reads or owns, or a new one.
  [[nodiscard]] RowBlock* take();

  std::unique_ptr<RowBuffers> buffers_;
  std::vector<std::unique_ptr<RowBlock>> blocks_;
  std::vector<RowBlock*> spare_;  // of memories that are gone
};

}  // namespace moesaic
