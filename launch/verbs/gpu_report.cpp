#include "launch/verbs/gpu_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "kernels/cuda/grouped_library.h"
#include "kernels/cuda/mlp_products.h"
#include "launch/bench/gpu_measure.h"
#include "launch/job/gather.h"
#include "launch/job/gpu_road.h"
#include "launch/results/result_table.h"
#include "launch/verbs/gpu_self_test.h"

namespace moesaic {
namespace {

constexpr std::string_view kHowShown =
    "run on an H200 in an earlier form, for other chips executed in software";

/// Of tensor cores: chips of one family give the same bits.
std::string_view family_name(int chip) {
  if (chip < kLeastChip) return "none: too old";
  return chip < 90 ? "sm_80 to sm_89" : "sm_90 and later";
}

std::vector<std::string> chip_names(const std::vector<int>& chips) {
  std::vector<std::string> names;
  for (const int chip : chips) names.push_back(fmt::format("sm_{}", chip));
  return names;
}

/// What multiplies weights and activations in nvfp4 as they are: kernels of this program, a library
/// that is there or not, or nothing.
std::string w4a4_kernels(const DeviceInfo& device, const GpuReport& report) {
  constexpr Layout kNvfp4 = {.format = Format::nvfp4};
  constexpr auto kRounded = Nvfp4Activations::nvfp4;
  if (missing_on_chip(device, kNvfp4, DeviceKernels::mma, kRounded).empty()) return "block_scaled";
  if (missing_on_chip(device, kNvfp4, DeviceKernels::cutlass, kRounded).empty()) {
    return report.cutlass.empty() ? "cutlass, which is not there" : "cutlass";
  }
  return "none";
}

std::string w4a4_text(const std::string& kernels) {
  return kernels == "none" ? "no W4A4 on tensor cores" : "W4A4 by " + kernels;
}

/// Ranks of this rank's node that have this GPU.
std::vector<int> ranks_with(const Runtime& runtime, const GpuReport& report,
                            const DeviceInfo& device) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < runtime.ranks().size(); ++rank) {
    const bool is_here = runtime.ranks()[rank].node == runtime.self().node;
    if (is_here && report.of_ranks[rank] == travelling_uuid(device.uuid)) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

}  // namespace

GpuReport report_gpus(const Runtime& runtime) {
  GpuReport report{.toolkit = std::string(device_toolkit())};
  std::set<int> chips;
  for (const DeviceImage& image : device_images()) {
    if (!image.is_ptx) chips.insert(image.chip);
  }
  report.chips.assign(chips.begin(), chips.end());
  const auto grouped = GroupedLibrary::load(
      report.no_cutlass, runtime.options().cutlass.value_or(GroupedLibrary::usual_file()));
  if (grouped != nullptr) report.cutlass = grouped->name();
  const auto nccl = load_nccl(runtime.options(), report.nccl);
  if (nccl != nullptr)
    report.nccl = fmt::format("NCCL {} ({})", nccl->version_text(), nccl->path());
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::load(report.absent);
  if (driver == nullptr) return report;
  report.driver = driver->version_text();
  report.release = cuda_driver_release();
  report.devices = visible_devices(*driver);
  if (report.devices.empty()) {
    report.absent = "the NVIDIA driver shows none";
    return report;
  }
  report.own = runtime.grid().node().rank() % static_cast<int>(report.devices.size());
  if (report.toolkit.empty() ||
      report.devices[static_cast<std::size_t>(report.own)].chip < kLeastChip) {
    return report;
  }
  try {
    Device device(driver, report.own, device_images());
    const auto deadline = static_cast<double>(runtime.options().timeout);
    report.kernels = test_gpu_kernels(device, deadline);
    const CopyRates rates = measure_copies(device, deadline);
    report.upload_gbs = rates.upload_gbs;
    report.download_gbs = rates.download_gbs;
    report.read_gbs = rates.read_gbs;
  } catch (const Error& error) {
    report.failure = error.what();
  }
  return report;
}

void find_owners(const Runtime& runtime, GpuReport& report) {
  const bool has_own = !report.devices.empty();
  report.of_ranks = gather_values(
      runtime.world(),
      travelling_uuid(has_own ? report.devices[static_cast<std::size_t>(report.own)].uuid
                              : std::string()));
}

std::string gpu_text(const GpuReport& report, const Runtime& runtime) {
  std::string text =
      fmt::format("GPU kernels: {}\n", report.toolkit.empty()
                                           ? "none: built without a CUDA compiler (docs/gpu.md)"
                                           : fmt::format("for {}, by CUDA {}; {}",
                                                         fmt::join(chip_names(report.chips), ", "),
                                                         report.toolkit, kHowShown));
  text += report.cutlass.empty()
              ? fmt::format(
                    "GPU kernels by CUTLASS: none: {}; tools/cutlass.sh and cmake "
                    "-DMOESAIC_CUTLASS=ON build them (docs/gpu.md)\n",
                    report.no_cutlass)
              : fmt::format("GPU kernels by CUTLASS: for sm_{}, {}; compiled, never run\n",
                            fmt::join(cuda::kGroupedChips, ", sm_"), report.cutlass);
  if (!report.absent.empty())
    return text + fmt::format("GPUs: none: {}; {}\n", report.absent, report.nccl);
  text +=
      fmt::format("GPUs: driver {}for CUDA {}; {}\n",
                  report.release.empty() ? "" : report.release + " ", report.driver, report.nccl);
  for (const DeviceInfo& device : report.devices) {
    const std::vector<int> ranks = ranks_with(runtime, report, device);
    text += fmt::format(
        "GPU {}: {}, {}, {}, {} multiprocessors, sm_{} (bits of {}), {}, {}\n", device.index,
        device.name, device.uuid, format_bytes(device.memory_bytes), device.multiprocessors,
        device.chip, family_name(device.chip), w4a4_text(w4a4_kernels(device, report)),
        ranks.empty() ? "no rank's"
                      : fmt::format("{} {}", ranks.size() > 1 ? "shared by ranks" : "of rank",
                                    fmt::join(ranks, ", ")));
  }
  if (report.upload_gbs > 0) {
    text += fmt::format("GPU {}: reads its memory with {} GB/s, copies {} GB/s up, {} GB/s down\n",
                        report.own, short_number(report.read_gbs), short_number(report.upload_gbs),
                        short_number(report.download_gbs));
  }
  return text;
}

std::string gpu_json(const GpuReport& report) {
  std::vector<std::string> devices;
  for (const DeviceInfo& device : report.devices) {
    devices.push_back(JsonWriter()
                          .field("name", device.name)
                          .field("uuid", device.uuid)
                          .field("chip", device.chip)
                          .field("multiprocessors", device.multiprocessors)
                          .field("memory_bytes", device.memory_bytes)
                          .field("w4a4", w4a4_kernels(device, report))
                          .text());
  }
  return JsonWriter()
      .field("toolkit", report.toolkit)
      .raw_field("chips", fmt::format("[{}]", fmt::join(report.chips, ", ")))
      .field("shown", kHowShown)
      .field("absent", report.absent)
      .field("driver", report.driver)
      .field("release", report.release)
      .field("nccl", report.nccl)
      .field("cutlass", report.cutlass)
      .field("no_cutlass", report.no_cutlass)
      .raw_field("devices", fmt::format("[{}]", fmt::join(devices, ", ")))
      .field("own", report.own)
      .field("upload_gbs", report.upload_gbs)
      .field("download_gbs", report.download_gbs)
      .field("read_gbs", report.read_gbs)
      .text();
}

}  // namespace moesaic
