#include "launch/bench/gpu_measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "kernels/cuda/device_roofs.h"
#include "kernels/cuda/mlp_products.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/rank_device.h"

namespace moesaic {
namespace {

constexpr std::int64_t kCopyBytes = std::int64_t{32} << 20;
constexpr std::array<std::string_view, 3> kKernels = {"portable", "mma", "block_scaled"};

/// Of one rank's GPU. Travels as bytes.
struct OwnRates {
  std::array<char, 96> name{};  // empty: it measures none
  double reads = 0;
  double up = 0;
  double down = 0;
  DeviceRoofs::Calls calls{};
  std::array<double, kKernels.size()> flops{};  // 0: the chip has none of these
};

/// This rank's; empty if there is none to measure.
DeviceInfo find_own(const Runtime& runtime, const CudaDriver& driver) {
  const std::vector<DeviceInfo> devices = visible_devices(driver);
  if (devices.empty() || device_toolkit().empty()) return {};
  const auto rank = static_cast<std::size_t>(runtime.grid().node().rank());
  const DeviceInfo& own = devices[rank % devices.size()];
  return own.chip < kLeastChip ? DeviceInfo() : own;
}

bool has_kernels(const DeviceInfo& device, std::string_view kernels) {
  return kernels != "block_scaled" || missing_on_chip(device, {.format = Format::nvfp4},
                                                      DeviceKernels::mma, Nvfp4Activations::nvfp4)
                                          .empty();
}

OwnRates measure(Device& device, double deadline_seconds) {
  OwnRates rates;
  fmt::format_to_n(rates.name.data(), rates.name.size() - 1, "{:.80}, sm_{}", device.info().name,
                   device.info().chip);
  const CopyRates copies = measure_copies(device, deadline_seconds);
  rates.up = 1e9 * copies.upload_gbs;
  rates.down = 1e9 * copies.download_gbs;
  rates.reads = 1e9 * copies.read_gbs;
  DeviceRoofs roofs(device, deadline_seconds);
  rates.calls = roofs.measure_calls();
  for (std::size_t i = 0; i < kKernels.size(); ++i) {
    if (!has_kernels(device.info(), kKernels[i])) continue;
    roofs.measure_multiply(kKernels[i]);
    rates.flops[i] = roofs.operations_per_second().at(std::string(kKernels[i]));
  }
  return rates;
}

void take_slowest(const OwnRates& rates, GpuRates& all) {
  all.read_bytes_per_second = std::min(all.read_bytes_per_second, rates.reads);
  all.upload_bytes_per_second = std::min(all.upload_bytes_per_second, rates.up);
  all.download_bytes_per_second = std::min(all.download_bytes_per_second, rates.down);
  all.call_seconds = std::max(all.call_seconds, rates.calls.next_seconds);
  all.wait_seconds = std::max(all.wait_seconds, rates.calls.wait_seconds);
  for (std::size_t i = 0; i < kKernels.size(); ++i) {
    const auto known = all.flops_per_second.find(kKernels[i]);
    if (known == all.flops_per_second.end()) continue;
    known->second = std::min(known->second, rates.flops[i]);
    if (known->second == 0) all.flops_per_second.erase(known);
  }
}

}  // namespace

CopyRates measure_copies(Device& device, double deadline_seconds) {
  using Clock = std::chrono::steady_clock;
  const PinnedBuffer from = device.allocate_pinned(kCopyBytes);
  const PinnedBuffer to = device.allocate_pinned(kCopyBytes);
  const DeviceBuffer there = device.allocate(kCopyBytes);
  std::memset(to.data(), 0, kCopyBytes);
  for (std::int64_t i = 0; i < kCopyBytes; ++i) {
    from.data()[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  const auto rate = [&](const auto& copy) {
    double best = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto start = Clock::now();
      copy();
      device.mark();
      device.wait_for_mark(deadline_seconds);
      const std::chrono::duration<double> time = Clock::now() - start;
      best = std::max(best, static_cast<double>(kCopyBytes) / time.count() / 1e9);
    }
    return best;
  };
  DeviceRoofs roofs(device, deadline_seconds);
  roofs.measure_reads();
  CopyRates rates{.read_gbs = roofs.bytes_per_second() / 1e9};
  rates.upload_gbs = rate([&] { device.upload(there.address(), from.data(), kCopyBytes); });
  rates.download_gbs = rate([&] { device.download(to.data(), there.address(), kCopyBytes); });
  require(std::memcmp(from.data(), to.data(), kCopyBytes) == 0, ErrorKind::resource,
          "GPU {} ({}): not every byte of a copy came back", device.info().index,
          device.info().name);
  return rates;
}

std::optional<GpuRates> measure_gpus(const Runtime& runtime) {
  std::shared_ptr<const CudaDriver> driver;
  DeviceInfo info;
  agree(runtime.world(), [&] {
    std::string absent;
    driver = CudaDriver::load(absent);
    if (driver != nullptr) info = find_own(runtime, *driver);
  });
  const DeviceShare share = share_device(runtime, info.uuid);
  const bool measures = !info.uuid.empty() && share.is_first;
  OwnRates own;
  agree(runtime.world(), [&] {
    if (!measures) return;
    Device device(driver, info.index, device_images());
    own = measure(device, static_cast<double>(runtime.options().timeout));
  });
  std::optional<GpuRates> all;
  for (const OwnRates& rates : gather_values(runtime.world(), own)) {
    if (rates.name[0] == '\0') continue;
    if (!all) {
      all = GpuRates{.name = rates.name.data(),
                     .read_bytes_per_second = rates.reads,
                     .upload_bytes_per_second = rates.up,
                     .download_bytes_per_second = rates.down};
      for (std::size_t i = 0; i < kKernels.size(); ++i) {
        all->flops_per_second.emplace(kKernels[i], rates.flops[i]);
      }
    }
    take_slowest(rates, *all);
  }
  return all;
}

}  // namespace moesaic
