#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

namespace moesaic::ptx {

/// Something that a kernel must not do, or that the machine does not know.
struct MachineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Device memory of which every access is checked: inside one allocation, written before it is
/// read, and not shared by two blocks of a launch if one of them writes.
class DeviceMemory {
 public:
  /// 256-byte aligned, with a gap behind it that nobody may touch. Contents are unwritten.
  [[nodiscard]] std::uint64_t allocate(std::int64_t bytes);
  /// Throws for what is no allocation's begin.
  void release(std::uint64_t at);
  [[nodiscard]] std::int64_t allocated_bytes() const noexcept { return allocated_bytes_; }

  /// From and to the host.
  void write(std::uint64_t at, const void* from, std::int64_t bytes);
  void read(std::uint64_t at, void* to, std::int64_t bytes);

  /// Blocks of one launch are numbered from 0; accesses below belong to the last one begun.
  void begin_launch() noexcept { next_owner_ += 1; }
  void begin_block();
  void end_launch() noexcept;
  /// Of `bytes` bytes, aligned to their number.
  void store(std::uint64_t at, const void* from, std::size_t bytes);
  void load(std::uint64_t at, void* to, std::size_t bytes);

 private:
  struct Allocation {
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> written;  // a flag a byte
    std::vector<std::uint64_t> owners;  // a word of 4 bytes: the block that wrote it, 0: the host
  };
  /// The allocation that has all of the bytes, and where in it they begin.
  Allocation& find(std::uint64_t at, std::size_t bytes, std::size_t& offset);

  std::map<std::uint64_t, Allocation> allocations_;
  std::uint64_t found_at_ = 0;  // the last one found
  Allocation* found_ = nullptr;
  std::uint64_t next_ = 0x7f0000000000;
  std::int64_t allocated_bytes_ = 0;
  std::uint64_t owner_ = 0;        // the block that accesses
  std::uint64_t first_owner_ = 1;  // of this launch
  std::uint64_t next_owner_ = 0;
};

}  // namespace moesaic::ptx
