#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace moesaic {

// The part of NVIDIA's driver API (libcuda.so.1) that Moesaic uses, as its header declares it:
// types that stay what they are for all versions of the driver. So no toolkit is needed to build or
// run.

using CudaResult = int;
using CudaDevice = int;
using CudaAddress = unsigned long long;

inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaOutOfMemory = 2;
inline constexpr CudaResult kCudaNoBinaryForGpu = 209;
inline constexpr CudaResult kCudaNotReady = 600;

/// CUdevice_attribute
enum class CudaAttribute : int {
  multiprocessors = 16,
  cache_bytes = 38,
  compute_major = 75,
  compute_minor = 76
};

struct CudaUuid {
  unsigned char bytes[16];
};

using CudaContext = struct CudaContextTag*;
using CudaStream = struct CudaStreamTag*;
using CudaEvent = struct CudaEventTag*;
using CudaModule = struct CudaModuleTag*;
using CudaFunction = struct CudaFunctionTag*;
using CudaGraph = struct CudaGraphTag*;
using CudaGraphExec = struct CudaGraphExecTag*;

/// CUstreamCaptureMode: whose calls are refused that would wait while a stream is captured.
enum class CudaCaptureMode : int { thread_local_calls = 1 };

/// Member, symbol and type of every function.
#define MOESAIC_CUDA_FUNCTIONS(X)                                                                  \
  X(init, "cuInit", CudaResult(unsigned))                                                          \
  X(driver_version, "cuDriverGetVersion", CudaResult(int*))                                        \
  X(error_name, "cuGetErrorName", CudaResult(CudaResult, const char**))                            \
  X(error_string, "cuGetErrorString", CudaResult(CudaResult, const char**))                        \
  X(device_count, "cuDeviceGetCount", CudaResult(int*))                                            \
  X(device_get, "cuDeviceGet", CudaResult(CudaDevice*, int))                                       \
  X(device_name, "cuDeviceGetName", CudaResult(char*, int, CudaDevice))                            \
  X(device_uuid, "cuDeviceGetUuid_v2", CudaResult(CudaUuid*, CudaDevice))                          \
  X(device_memory, "cuDeviceTotalMem_v2", CudaResult(std::size_t*, CudaDevice))                    \
  X(device_attribute, "cuDeviceGetAttribute", CudaResult(int*, CudaAttribute, CudaDevice))         \
  X(context_retain, "cuDevicePrimaryCtxRetain", CudaResult(CudaContext*, CudaDevice))              \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", CudaResult(CudaDevice))                       \
  X(context_set, "cuCtxSetCurrent", CudaResult(CudaContext))                                       \
  X(memory_info, "cuMemGetInfo_v2", CudaResult(std::size_t*, std::size_t*))                        \
  X(allocate, "cuMemAlloc_v2", CudaResult(CudaAddress*, std::size_t))                              \
  X(release, "cuMemFree_v2", CudaResult(CudaAddress))                                              \
  X(allocate_host, "cuMemAllocHost_v2", CudaResult(void**, std::size_t))                           \
  X(release_host, "cuMemFreeHost", CudaResult(void*))                                              \
  X(upload, "cuMemcpyHtoDAsync_v2", CudaResult(CudaAddress, const void*, std::size_t, CudaStream)) \
  X(download, "cuMemcpyDtoHAsync_v2", CudaResult(void*, CudaAddress, std::size_t, CudaStream))     \
  X(copy, "cuMemcpyDtoDAsync_v2", CudaResult(CudaAddress, CudaAddress, std::size_t, CudaStream))   \
  X(stream_create, "cuStreamCreate", CudaResult(CudaStream*, unsigned))                            \
  X(stream_destroy, "cuStreamDestroy_v2", CudaResult(CudaStream))                                  \
  X(event_create, "cuEventCreate", CudaResult(CudaEvent*, unsigned))                               \
  X(event_destroy, "cuEventDestroy_v2", CudaResult(CudaEvent))                                     \
  X(event_record, "cuEventRecord", CudaResult(CudaEvent, CudaStream))                              \
  X(event_query, "cuEventQuery", CudaResult(CudaEvent))                                            \
  X(module_load, "cuModuleLoadData", CudaResult(CudaModule*, const void*))                         \
  X(module_unload, "cuModuleUnload", CudaResult(CudaModule))                                       \
  X(module_function, "cuModuleGetFunction", CudaResult(CudaFunction*, CudaModule, const char*))    \
  X(begin_capture, "cuStreamBeginCapture_v2", CudaResult(CudaStream, CudaCaptureMode))             \
  X(end_capture, "cuStreamEndCapture", CudaResult(CudaStream, CudaGraph*))                         \
  X(graph_instantiate, "cuGraphInstantiateWithFlags",                                              \
    CudaResult(CudaGraphExec*, CudaGraph, unsigned long long))                                     \
  X(graph_launch, "cuGraphLaunch", CudaResult(CudaGraphExec, CudaStream))                          \
  X(graph_destroy, "cuGraphDestroy", CudaResult(CudaGraph))                                        \
  X(graph_exec_destroy, "cuGraphExecDestroy", CudaResult(CudaGraphExec))                           \
  X(launch, "cuLaunchKernel",                                                                      \
    CudaResult(CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
               CudaStream, void**, void**))

/// The release of NVIDIA's kernel module, "580.65.06", as Linux tells it in `file`; empty: it does
/// not, as in some containers.
[[nodiscard]] std::string cuda_driver_release(
    const std::string& file = "/sys/module/nvidia/version");

/// The functions of a driver that is loaded while the program runs.
class CudaDriver {
 public:
  /// Loads libcuda.so.1, or another library with its functions. Null, with the reason, if there is
  /// none, if it is too old to have all functions, or if it does not start.
  [[nodiscard]] static std::shared_ptr<const CudaDriver> load(
      std::string& reason, const std::string& library = "libcuda.so.1");
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  /// "13.0"
  [[nodiscard]] std::string version_text() const;
  [[nodiscard]] int num_devices() const;
  /// Throws Error{resource} that says what failed, unless it is success.
  void check(CudaResult result, std::string_view what) const;

#define X(member, symbol, type) std::type_identity_t<type>* member = nullptr;
  MOESAIC_CUDA_FUNCTIONS(X)
#undef X

 private:
  CudaDriver() = default;

  void* library_ = nullptr;
};

}  // namespace moesaic
