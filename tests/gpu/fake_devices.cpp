// What the fake driver (fake_driver.cpp) says of its GPUs.

#include <cstring>

#include "base/cuda_driver.h"
#include "tests/gpu/fake_objects.h"

using namespace moesaic;

extern "C" {

CudaResult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(fake_setting("MOESAIC_FAKE_GPUS", 1));
  return kCudaSuccess;
}
CudaResult cuDeviceGet(CudaDevice* device, int index) {
  *device = index;
  return kCudaSuccess;
}
CudaResult cuDeviceGetName(char* name, int size, CudaDevice) {
  std::strncpy(name, "PTX machine", static_cast<std::size_t>(size));
  return kCudaSuccess;
}
CudaResult cuDeviceGetUuid_v2(CudaUuid* uuid, CudaDevice device) {
  *uuid = {};
  uuid->bytes[15] = static_cast<unsigned char>(device);
  if (fake_setting("MOESAIC_FAKE_OWN", 0) != 0) {
    uuid->bytes[14] = static_cast<unsigned char>(1 + fake_setting("OMPI_COMM_WORLD_LOCAL_RANK", 0));
  }
  return kCudaSuccess;
}
CudaResult cuDeviceTotalMem_v2(std::size_t* bytes, CudaDevice) {
  *bytes = static_cast<std::size_t>(fake_memory_bytes());
  return kCudaSuccess;
}
CudaResult cuDeviceGetAttribute(int* value, CudaAttribute attribute, CudaDevice) {
  const auto chip = static_cast<int>(fake_setting("MOESAIC_FAKE_CHIP", 90));
  *value = attribute == CudaAttribute::compute_major   ? chip / 10
           : attribute == CudaAttribute::compute_minor ? chip % 10
                                                       : 1;
  return kCudaSuccess;
}

}  // extern "C"
