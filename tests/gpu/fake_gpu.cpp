#include "tests/gpu/fake_gpu.h"

#include <stdexcept>

namespace moesaic {

std::shared_ptr<const CudaDriver> fake_driver() {
  std::string reason;
  auto driver = CudaDriver::load(reason, MOESAIC_FAKE_DRIVER);
  if (driver == nullptr) throw std::runtime_error(reason);
  return driver;
}

std::vector<float> fake_results(const DeviceCase& mlps, DeviceKernels kernels,
                                std::span<const DeviceImage> images) {
  Device device(fake_driver(), 0, images);
  const auto library = kernels == DeviceKernels::cutlass ? fake_library() : nullptr;
  return mlps.results_on(device, kernels, library.get());
}

std::shared_ptr<const GroupedLibrary> fake_library() {
  std::string reason;
  auto library = GroupedLibrary::load(reason, MOESAIC_FAKE_CUTLASS);
  if (library == nullptr) throw std::runtime_error(reason);
  return library;
}

}  // namespace moesaic
