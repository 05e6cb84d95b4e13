#include "kernels/cuda/device_roofs.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/roof_arguments.h"

namespace moesaic {
namespace {

constexpr std::string_view kRoofModule = "roofs/roofs";

/// A kernel of products from registers.
struct ProductRoof {
  std::string_view name;
  std::string_view module;
  double operations;  // of a thread, of one chain once
};
constexpr ProductRoof kProductRoofs[] = {
    {"portable", kRoofModule, 2},
    {"mma", kRoofModule, 2.0 * 16 * 8 * 16 / 32},
    {"block_scaled", "block_scaled/roofs", 2.0 * 16 * 8 * 64 / 32},
};
constexpr int kBlocksOfMultiprocessor = 4;
constexpr std::int64_t kCaches = 8;  // data is so many times what the cache holds
constexpr std::int64_t kLeastData = std::int64_t{1} << 20;
constexpr std::int64_t kPattern = std::int64_t{1} << 20;
/// Shorter times are those of launches.
constexpr double kEnoughSeconds = 0.002;
constexpr int kMostLaunches = 64;
constexpr std::int32_t kMostRepeats = 1 << 15;
constexpr int kAttempts = 3;

}  // namespace

DeviceRoofs::DeviceRoofs(Device& device, double deadline_seconds)
    : device_(device),
      deadline_seconds_(deadline_seconds),
      threads_(kBlocksOfMultiprocessor * std::int64_t{cuda::kRoofThreads} *
               device.info().multiprocessors),
      out_(device.allocate(threads_ * 4)) {
  const std::int64_t step = threads_ * cuda::kRoofReads * 16;
  const std::int64_t wanted = std::max(kLeastData, kCaches * device.info().cache_bytes);
  const std::int64_t bytes = std::min(wanted, device.free_bytes() / 4) / step * step;
  data_ = device.allocate(std::max(bytes, step));
  const PinnedBuffer pattern = device.allocate_pinned(kPattern);
  std::mt19937 random(3);
  std::generate_n(reinterpret_cast<std::uint32_t*>(pattern.data()), kPattern / 4,
                  [&] { return static_cast<std::uint32_t>(random()); });
  for (std::int64_t at = 0; at < data_.bytes(); at += kPattern) {
    device.upload(data_.address() + static_cast<CudaAddress>(at), pattern.data(),
                  std::min(kPattern, data_.bytes() - at));
  }
  device.mark();
  device.wait_for_mark(deadline_seconds);
}

double DeviceRoofs::time_launches(CudaFunction kernel, int launches, std::int32_t repeats) {
  const std::int64_t round_bytes = threads_ * cuda::kRoofReads * 16;
  cuda::RoofArguments arguments = {.data = pointer_to<const void>(data_.address()),
                                   .out = pointer_to<std::uint32_t>(out_.address()),
                                   .rounds = narrow<std::int32_t>(data_.bytes() / round_bytes),
                                   .repeats = repeats};
  const auto start = std::chrono::steady_clock::now();
  for (int launch = 0; launch < launches; ++launch) {
    device_.launch(kernel,
                   {.grid_x = static_cast<unsigned>(threads_ / cuda::kRoofThreads),
                    .threads = cuda::kRoofThreads},
                   &arguments);
  }
  device_.mark();
  device_.wait_for_mark(deadline_seconds_);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void DeviceRoofs::measure_reads() {
  CudaFunction const kernel = device_.kernel(kRoofModule, "reads");
  const double once = time_launches(kernel, 1, 0);
  const int launches =
      static_cast<int>(std::clamp(kEnoughSeconds / once, 1.0, 1.0 * kMostLaunches));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double seconds = time_launches(kernel, launches, 0);
    bytes_ = std::max(bytes_, static_cast<double>(launches * data_.bytes()) / seconds);
  }
}

DeviceRoofs::Calls DeviceRoofs::measure_calls() {
  CudaFunction const kernel = device_.kernel(kRoofModule, "portable");
  double once = time_launches(kernel, 1, 0);
  double many = time_launches(kernel, kMostLaunches, 0);
  for (int attempt = 1; attempt < kAttempts; ++attempt) {
    once = std::min(once, time_launches(kernel, 1, 0));
    many = std::min(many, time_launches(kernel, kMostLaunches, 0));
  }
  const double next = many / kMostLaunches;  // the wait is a small part
  return {.next_seconds = next, .wait_seconds = std::max(0.0, once - next)};
}

void DeviceRoofs::measure_multiply(std::string_view kernels) {
  const auto* const roof = std::ranges::find(kProductRoofs, kernels, &ProductRoof::name);
  require(roof != std::end(kProductRoofs), ErrorKind::internal, "no roof of {}", kernels);
  CudaFunction const kernel = device_.kernel(roof->module, std::string(roof->name));
  std::int32_t repeats = 4;
  while (time_launches(kernel, 1, repeats) < kEnoughSeconds && repeats < kMostRepeats) repeats *= 4;
  const double operations =
      roof->operations * cuda::kRoofChains * repeats * static_cast<double>(threads_);
  double& best = operations_[std::string(kernels)];
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    best = std::max(best, operations / time_launches(kernel, 1, repeats));
  }
}

}  // namespace moesaic
