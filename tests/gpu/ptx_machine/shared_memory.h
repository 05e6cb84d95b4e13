#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moesaic::ptx {

/// The shared memory of a block. Every byte knows who wrote and read it since the last barrier: two
/// warps at one byte, one of them writing, are a race. A copy writes from when it begins: until it
/// has landed nobody touches its bytes.
class SharedMemory {
 public:
  /// Of a new block; contents are unwritten.
  void begin_block(std::size_t bytes);
  void pass_barrier() noexcept { ++epoch_; }

  void store(std::uint64_t at, const void* from, std::size_t bytes, unsigned warp);
  void load(std::uint64_t at, void* to, std::size_t bytes, unsigned warp);
  void begin_copy(std::uint64_t at, std::size_t bytes, unsigned warp);
  void land_copy(std::uint64_t at, const void* from, std::size_t bytes, unsigned warp);

 private:
  /// When a byte was last touched, and by which warp.
  struct Touch {
    std::uint32_t epoch = 0;
    std::uint32_t warp = 0;
  };
  void check(std::uint64_t at, std::size_t bytes) const;
  void mark_written(std::uint64_t at, std::size_t bytes, unsigned warp);

  std::vector<std::uint8_t> bytes_;
  std::vector<Touch> written_;
  std::vector<Touch> read_;
  std::vector<bool> is_copied_;  // and the copy has not landed
  std::uint32_t epoch_ = 1;
  std::uint32_t first_epoch_ = 1;  // of the block
};

}  // namespace moesaic::ptx
