#include "tests/gpu/ptx_machine/device_memory.h"

#include <fmt/core.h>

#include <cstring>

namespace moesaic::ptx {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kGap = 4096;
constexpr std::uint8_t kPoison = 0xcd;

}  // namespace

std::uint64_t DeviceMemory::allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const std::uint64_t at = next_;
  allocations_[at] = {std::vector<std::uint8_t>(size, kPoison), std::vector<std::uint8_t>(size),
                      std::vector<std::uint64_t>((size + 3) / 4)};
  next_ += (size + kAlignment - 1) / kAlignment * kAlignment + kGap;
  allocated_bytes_ += bytes;
  return at;
}

void DeviceMemory::release(std::uint64_t at) {
  const auto found = allocations_.find(at);
  if (found == allocations_.end()) throw MachineError("what is freed was not allocated");
  allocated_bytes_ -= static_cast<std::int64_t>(found->second.bytes.size());
  allocations_.erase(found);
  found_ = nullptr;
}

DeviceMemory::Allocation& DeviceMemory::find(std::uint64_t at, std::size_t bytes,
                                             std::size_t& offset) {
  if (found_ == nullptr || at < found_at_ || at - found_at_ + bytes > found_->bytes.size()) {
    auto next = allocations_.upper_bound(at);
    if (next == allocations_.begin()) throw MachineError("address outside all allocations");
    --next;
    const std::size_t size = next->second.bytes.size();
    if (at - next->first + bytes > size) {
      throw MachineError(fmt::format("address {} (+{}) of an allocation of {} bytes",
                                     at - next->first, bytes, size));
    }
    found_at_ = next->first;
    found_ = &next->second;
  }
  offset = at - found_at_;
  return *found_;
}

void DeviceMemory::write(std::uint64_t at, const void* from, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  std::size_t offset = 0;
  Allocation& allocation = find(at, size, offset);
  std::memcpy(allocation.bytes.data() + offset, from, size);
  std::memset(allocation.written.data() + offset, 1, size);
}

void DeviceMemory::read(std::uint64_t at, void* to, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  std::size_t offset = 0;
  const Allocation& allocation = find(at, size, offset);
  if (std::memchr(allocation.written.data() + offset, 0, size) != nullptr) {
    throw MachineError("the host reads what nobody has written");
  }
  std::memcpy(to, allocation.bytes.data() + offset, size);
}

void DeviceMemory::begin_block() {
  owner_ = next_owner_++;
}

void DeviceMemory::end_launch() noexcept {
  first_owner_ = next_owner_ + 1;
}

void DeviceMemory::store(std::uint64_t at, const void* from, std::size_t bytes) {
  if (at % bytes != 0) throw MachineError("misaligned address");
  std::size_t offset = 0;
  Allocation& allocation = find(at, bytes, offset);
  for (std::size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) {
    std::uint64_t& owner = allocation.owners[word];
    if (owner >= first_owner_ && owner != owner_) {
      throw MachineError("two blocks write the same word of device memory");
    }
    owner = owner_;
  }
  std::memcpy(allocation.bytes.data() + offset, from, bytes);
  std::memset(allocation.written.data() + offset, 1, bytes);
}

void DeviceMemory::load(std::uint64_t at, void* to, std::size_t bytes) {
  if (at % bytes != 0) throw MachineError("misaligned address");
  std::size_t offset = 0;
  const Allocation& allocation = find(at, bytes, offset);
  if (std::memchr(allocation.written.data() + offset, 0, bytes) != nullptr) {
    throw MachineError(fmt::format("byte {} of an allocation of {} is read before it is written",
                                   offset, allocation.bytes.size()));
  }
  for (std::size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) {
    const std::uint64_t owner = allocation.owners[word];
    if (owner >= first_owner_ && owner != owner_) {
      throw MachineError("a block reads what another of the launch wrote");
    }
  }
  std::memcpy(to, allocation.bytes.data() + offset, bytes);
}

}  // namespace moesaic::ptx
