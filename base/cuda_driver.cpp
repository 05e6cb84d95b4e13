#include "base/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <fstream>

#include "base/error.h"

namespace moesaic {
namespace {

/// From what a version of the driver API is: 13000 for 13.0.
constexpr int kOldestVersion = 13000;

std::string version_name(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string cuda_driver_release(const std::string& file) {
  std::string release;
  std::ifstream(file) >> release;
  return release;
}

std::shared_ptr<const CudaDriver> CudaDriver::load(std::string& reason,
                                                   const std::string& library) {
  std::shared_ptr<CudaDriver> driver(new CudaDriver);
  driver->library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver->library_ == nullptr) {
    reason = fmt::format("no NVIDIA driver: {}", dlerror());
    return nullptr;
  }
#define X(member, symbol, type)                                                                    \
  driver->member = reinterpret_cast<std::type_identity_t<type>*>(dlsym(driver->library_, symbol)); \
  if (driver->member == nullptr) {                                                                 \
    reason = fmt::format("the NVIDIA driver is too old: it has no {}", symbol);                    \
    return nullptr;                                                                                \
  }
  MOESAIC_CUDA_FUNCTIONS(X)
#undef X
  int version = 0;
  const CudaResult started = driver->init(0);
  if (started == kCudaSuccess) driver->driver_version(&version);
  if (started != kCudaSuccess || version < kOldestVersion) {
    const char* name = nullptr;
    driver->error_name(started, &name);
    reason = started != kCudaSuccess
                 ? fmt::format("the NVIDIA driver does not start: {}",
                               name != nullptr ? name : std::to_string(started).c_str())
                 : fmt::format("the NVIDIA driver is too old: it has CUDA {}, {} is needed",
                               version_name(version), version_name(kOldestVersion));
    return nullptr;
  }
  return driver;
}

CudaDriver::~CudaDriver() {
  if (library_ != nullptr) dlclose(library_);
}

std::string CudaDriver::version_text() const {
  int version = 0;
  check(driver_version(&version), "cuDriverGetVersion");
  return version_name(version);
}

int CudaDriver::num_devices() const {
  int count = 0;
  check(device_count(&count), "cuDeviceGetCount");
  return count;
}

void CudaDriver::check(CudaResult result, std::string_view what) const {
  if (result == kCudaSuccess) [[likely]]
    return;
  const char* name = nullptr;
  const char* text = nullptr;
  error_name(result, &name);
  error_string(result, &text);
  fail(ErrorKind::resource, "GPU: {}: {} ({})", what, name != nullptr ? name : "error",
       text != nullptr ? text : std::to_string(result).c_str());
}

}  // namespace moesaic
