#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/device.h"

namespace moesaic {

/// Measures what a GPU reaches at most: reads of its memory, and products from registers. Keeps the
/// best of all attempts, the time of launches included.
class DeviceRoofs {
 public:
  /// Reads memory of its own: several times what the chip's cache holds, as far as a quarter of
  /// what is free has room. `device` must outlive this. A GPU that does not answer for
  /// `deadline_seconds` is an Error{peer}.
  DeviceRoofs(Device& device, double deadline_seconds);

  void measure_reads();
  /// Of what kernels of that name (kernels_name()) multiply with: portable, mma or, where the chip
  /// has it, block_scaled.
  void measure_multiply(std::string_view kernels);

  /// Of the driver.
  struct Calls {
    double next_seconds = 0;  // a kernel that does nothing, behind others
    double wait_seconds = 0;  // what one alone takes longer, until the host sees that it is done
  };
  [[nodiscard]] Calls measure_calls();

  /// The best so far, of what was measured.
  [[nodiscard]] double bytes_per_second() const noexcept { return bytes_; }
  [[nodiscard]] const std::map<std::string, double, std::less<>>& operations_per_second()
      const noexcept {
    return operations_;
  }

 private:
  /// Seconds of so many launches in a row.
  double time_launches(CudaFunction kernel, int launches, std::int32_t repeats);

  Device& device_;
  double deadline_seconds_;
  std::int64_t threads_;
  DeviceBuffer data_;
  DeviceBuffer out_;
  double bytes_ = 0;
  std::map<std::string, double, std::less<>> operations_;  // of kernels by their name
};

}  // namespace moesaic
