#include "launch/job/rank_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <system_error>

#include "base/directory.h"
#include "base/error.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

/// From this chip on tensor cores have the bits of the later family.
constexpr int kLaterChips = 90;

std::shared_ptr<const GroupedLibrary> load_library(const Options& options) {
  std::string reason;
  auto library =
      GroupedLibrary::load(reason, options.cutlass.value_or(GroupedLibrary::usual_file()));
  require(library != nullptr, ErrorKind::usage,
          "--gpu-kernel cutlass: {} (built with tools/cutlass.sh and cmake -DMOESAIC_CUTLASS=ON, "
          "docs/gpu.md)",
          reason);
  return library;
}

void open_own(const Runtime& runtime, RankDevice& own) {
  if (device_images().empty()) {
    own.reason = "this program was built without kernels for GPUs (docs/gpu.md)";
    return;
  }
  const std::shared_ptr<const CudaDriver> driver = CudaDriver::load(own.reason);
  if (driver == nullptr) return;
  const std::vector<DeviceInfo> devices = visible_devices(*driver);
  own.num_visible = static_cast<int>(devices.size());
  if (own.num_visible == 0) {
    own.reason = "the NVIDIA driver shows none";
    return;
  }
  const int index = runtime.grid().node().rank() % own.num_visible;
  const DeviceInfo& info = devices[static_cast<std::size_t>(index)];
  if (info.chip < kLeastChip) {
    own.reason = fmt::format("GPU {} ({}) is sm_{}: kernels are made for sm_{} and later", index,
                             info.name, info.chip, kLeastChip);
    return;
  }
  own.device = std::make_unique<Device>(driver, index, device_images());
  if (own.kernels == DeviceKernels::cutlass) own.library = load_library(runtime.options());
}

/// Whether a part of CUDA_VISIBLE_DEVICES can be one of so many GPUs.
bool names_gpu(std::string_view name, int there) {
  if (name.starts_with("GPU-") || name.starts_with("MIG-")) return true;
  int index = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  return error == std::errc() && stop == name.data() + name.size() && index >= 0 && index < there;
}

/// Tensor cores of different families sum in different orders.
void require_one_family(const Runtime& runtime, const RankDevice& own) {
  const std::vector<int> chips =
      gather_values(runtime.world(), own.device != nullptr ? own.device->info().chip : 0);
  agree(runtime.world(), [&] {
    std::size_t first = chips.size();
    for (std::size_t rank = 0; rank < chips.size(); ++rank) {
      if (chips[rank] == 0) continue;
      if (first == chips.size()) first = rank;
      require((chips[rank] < kLaterChips) == (chips[first] < kLaterChips), ErrorKind::usage,
              "the GPUs of rank {} (sm_{}) and rank {} (sm_{}) sum differently; the same bits on "
              "both: mpirun -n {} moesaic {} ... --numerics portable{}",
              first, chips[first], rank, chips[rank], chips.size(),
              verb_row(*runtime.command().verb).name,
              own.kernels == DeviceKernels::cutlass ? " --gpu-kernel mma" : "");
    }
  });
}

}  // namespace

std::int64_t RankDevice::available_bytes(const Options& options) const {
  const std::int64_t most = device->info().memory_bytes / 100 * options.gpu_memory;
  return std::min(most, device->free_bytes()) / num_sharers;
}

std::string RankDevice::text(std::string_view more) const {
  const DeviceInfo& info = device->info();
  return fmt::format("GPU {} ({:.40}, sm_{}, {}{})", info.index, info.name, info.chip,
                     kernels_name(kernels, nvfp4_activations), more);
}

DeviceUuid travelling_uuid(std::string_view uuid) noexcept {
  DeviceUuid own{};
  uuid.copy(own.data(), own.size() - 1);
  return own;
}

DeviceShare share_device(const Runtime& runtime, std::string_view uuid) {
  Communicator& node = runtime.grid().node();
  const DeviceUuid own = travelling_uuid(uuid);
  const std::vector<DeviceUuid> all = gather_values(node, own);
  return {.sharers = static_cast<int>(std::ranges::count(all, own)),
          .is_first = std::ranges::find(all, own) - all.begin() == node.rank()};
}

int count_gpus(const std::string& folder, const char* visible) {
  std::error_code error;
  const auto there = static_cast<int>(entries_of(folder, error).size());
  if (visible == nullptr) return there;
  std::vector<std::string> shown;
  std::istringstream names(visible);
  for (std::string name; std::getline(names, name, ',') && names_gpu(name, there);) {
    if (std::ranges::find(shown, name) == shown.end()) shown.push_back(name);
  }
  return std::min(static_cast<int>(shown.size()), there);
}

RankDevice open_rank_device(const Runtime& runtime, std::string_view option) {
  const Options& options = runtime.options();
  RankDevice own;
  if (options.gpu_kernel == GpuKernel::cutlass) own.kernels = DeviceKernels::cutlass;
  if (options.numerics == Numerics::portable) own.kernels = DeviceKernels::portable;
  own.nvfp4_activations = options.nvfp4_activations;
  agree(runtime.world(), [&] { open_own(runtime, own); });
  const std::vector<int> has_gpu =
      gather_values(runtime.world(), static_cast<int>(own.device != nullptr));
  agree(runtime.world(), [&] {
    require(std::ranges::count(has_gpu, 0) < std::ssize(has_gpu), ErrorKind::resource,
            "{}: there is no GPU: {}", option, own.reason);
  });
  const DeviceShare share =
      share_device(runtime, own.device != nullptr ? own.device->info().uuid : std::string());
  own.num_sharers = share.sharers;
  own.is_first_sharer = share.is_first;
  if (own.kernels != DeviceKernels::portable) require_one_family(runtime, own);
  return own;
}

void require_activations(const RankDevice& gpu, const Layout& weights) {
  const std::string missing =
      missing_on_chip(gpu.device->info(), weights, gpu.kernels, gpu.nvfp4_activations);
  require(
      missing.empty(), ErrorKind::usage, "{}: {}",
      gpu.kernels == DeviceKernels::cutlass ? "--gpu-kernel cutlass" : "--nvfp4-activations nvfp4",
      missing);
}

std::unique_ptr<DeviceExpertsWorkspace> make_experts_workspace(const Runtime& runtime,
                                                               const RankDevice& gpu) {
  auto workspace =
      std::make_unique<DeviceExpertsWorkspace>(*gpu.device, gpu.kernels, runtime.grid().experts(),
                                               static_cast<double>(runtime.options().timeout));
  workspace->nvfp4_activations = gpu.nvfp4_activations;
  workspace->library = gpu.library.get();
  return workspace;
}

}  // namespace moesaic
