#include "src/model/device_weights.h"

#include <algorithm>
#include <cstring>

namespace moesaic {
namespace {

/// Bytes that are page-locked, and copied at a time.
constexpr std::int64_t kStagingBytes = std::int64_t{8} << 20;

}  // namespace

const std::byte* DeviceWeights::allocate(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  memory_ = device_.allocate(bytes);
  staging_ = device_.allocate_pinned(std::min(bytes, kStagingBytes));
  return reinterpret_cast<const std::byte*>(memory_.address());
}

void DeviceWeights::write(const std::byte* to, std::span<const std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  const auto address = reinterpret_cast<CudaAddress>(to);
  const auto most = static_cast<std::size_t>(staging_.bytes());
  for (std::size_t done = 0; done < bytes.size(); done += most) {
    const std::size_t count = std::min(most, bytes.size() - done);
    std::memcpy(staging_.data(), bytes.data() + done, count);
    device_.upload(address + done, staging_.data(), static_cast<std::int64_t>(count));
    device_.mark();
    device_.wait_for_mark(deadline_seconds_);
  }
}

void DeviceWeights::finish() {
  const std::scoped_lock lock(mutex_);
  staging_ = {};
}

}  // namespace moesaic
