#pragma once

#include <mutex>

#include "base/device.h"
#include "src/model/weight_sink.h"

namespace moesaic {

/// Packed weights in the memory of a GPU.
class DeviceWeights final : public WeightSink {
 public:
  /// `device` must outlive this. A copy that takes more than `deadline_s` is an Error{peer}.
  DeviceWeights(Device& device, double deadline_s)
      : device_(device), deadline_seconds_(deadline_s) {}

  [[nodiscard]] const std::byte* allocate(std::int64_t bytes) override;
  void write(const std::byte* to, std::span<const std::byte> bytes) override;
  /// Gives back what only writing needs.
  void finish();

 private:
  Device& device_;
  double deadline_seconds_;
  std::mutex mutex_;  // of the device and the staging memory
  DeviceBuffer memory_;
  PinnedBuffer staging_;
};

}  // namespace moesaic
