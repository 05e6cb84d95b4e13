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
  return mlps.results_on(device, kernels);
}

}  // namespace moesaic
