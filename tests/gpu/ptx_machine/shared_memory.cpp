#include "tests/gpu/ptx_machine/shared_memory.h"

#include <fmt/core.h>

#include <cstring>

#include "tests/gpu/ptx_machine/device_memory.h"

namespace moesaic::ptx {
namespace {

constexpr std::uint32_t kSeveral = 0xffffffff;  // warps

[[noreturn]] void fail_race(std::uint64_t at) {
  throw MachineError(fmt::format("race of two warps on shared byte {}", at));
}

}  // namespace

void SharedMemory::begin_block(std::size_t bytes) {
  bytes_.assign(bytes, 0xcd);
  written_.resize(bytes);
  read_.resize(bytes);
  is_copied_.assign(bytes, false);
  first_epoch_ = ++epoch_;
}

void SharedMemory::check(std::uint64_t at, std::size_t bytes) const {
  if (at % bytes != 0) throw MachineError(fmt::format("misaligned shared address {}", at));
  if (at + bytes > bytes_.size()) {
    throw MachineError(
        fmt::format("shared address {} is outside the block's {} bytes", at, bytes_.size()));
  }
}

void SharedMemory::mark_written(std::uint64_t at, std::size_t bytes, unsigned warp) {
  check(at, bytes);
  for (std::size_t i = at; i < at + bytes; ++i) {
    if (is_copied_[i]) {
      throw MachineError(
          fmt::format("shared byte {} is written before a copy to it has landed", i));
    }
    if (written_[i].epoch == epoch_ && written_[i].warp != warp) fail_race(i);
    if (read_[i].epoch == epoch_ && read_[i].warp != warp) fail_race(i);
    written_[i] = {epoch_, warp};
  }
}

void SharedMemory::store(std::uint64_t at, const void* from, std::size_t bytes, unsigned warp) {
  mark_written(at, bytes, warp);
  std::memcpy(bytes_.data() + at, from, bytes);
}

void SharedMemory::begin_copy(std::uint64_t at, std::size_t bytes, unsigned warp) {
  mark_written(at, bytes, warp);
  for (std::size_t i = at; i < at + bytes; ++i) is_copied_[i] = true;
}

/// Other warps may read it behind the next barrier.
void SharedMemory::land_copy(std::uint64_t at, const void* from, std::size_t bytes, unsigned warp) {
  for (std::size_t i = at; i < at + bytes; ++i) {
    is_copied_[i] = false;
    written_[i] = {epoch_, warp};
  }
  std::memcpy(bytes_.data() + at, from, bytes);
}

void SharedMemory::load(std::uint64_t at, void* to, std::size_t bytes, unsigned warp) {
  check(at, bytes);
  for (std::size_t i = at; i < at + bytes; ++i) {
    if (is_copied_[i]) {
      throw MachineError(fmt::format("shared byte {} is read before a copy to it has landed", i));
    }
    if (written_[i].epoch < first_epoch_) {
      throw MachineError(fmt::format("shared byte {} is read before it is written", i));
    }
    if (written_[i].epoch == epoch_ && written_[i].warp != warp) fail_race(i);
    const bool others = read_[i].epoch == epoch_ && read_[i].warp != warp;
    read_[i] = {epoch_, others ? kSeveral : warp};
  }
  std::memcpy(to, bytes_.data() + at, bytes);
}

}  // namespace moesaic::ptx
