// A libcuda.so.1 whose GPUs are the PTX machine: the program loads it as it loads NVIDIA's, and
// does not know. Work is done when an event or a stream is asked for, not before, so that host
// memory that is changed or read too early is noticed. It takes PTX alone: code of a chip is
// refused as a driver refuses that of another one.
//
// While a stream is captured its thread may not take or give back memory, wait or load a module,
// nor copy memory of the host that is not page-locked, as with NVIDIA's: such a call ends the
// capture.
//
//   MOESAIC_FAKE_GPUS    how many there are (1)
//   MOESAIC_FAKE_CHIP    what they are (90: sm_90)
//   MOESAIC_FAKE_BYTES   their memory (1 GiB)
//   MOESAIC_FAKE_HANGS   1: work never ends; 2: work with kernels. Calls that wait for it never
//   return MOESAIC_FAKE_OWN     not 0: each rank of a node sees GPUs of its own MOESAIC_FAKE_FAILS
//   not 0: kernels fail, as one that reads outside of memory MOESAIC_FAKE_FLIPS   not 0: a bit of
//   the first byte that a copy brings down is wrong MOESAIC_FAKE_COUNTS  a file that gets a line at
//   the end: the bytes that copies brought down

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda_driver.h"
#include "tests/gpu/fake_objects.h"
#include "tests/gpu/fake_stream.h"

using namespace moesaic;

namespace {

constexpr CudaResult kInvalidValue = 1;
constexpr CudaResult kNotFound = 500;
constexpr CudaResult kLaunchFailed = 719;
constexpr CudaResult kCaptureUnsupported = 900;
constexpr CudaResult kCaptureInvalidated = 901;
constexpr CudaResult kCapturedEvent = 907;

/// All GPUs have one memory; a context is the same for all threads, as the primary one is.
struct Machine {
  ~Machine() {
    const char* const path = std::getenv("MOESAIC_FAKE_COUNTS");
    std::FILE* const file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, "%lld\n", bytes_down);
    std::fclose(file);
  }

  std::mutex mutex;
  long long bytes_down = 0;
  CudaContextTag context;
  ptx::DeviceMemory memory;
  std::map<const std::byte*, std::size_t> pinned;  // page-locked memory and its bytes
  std::string last_failure;
  long long memory_bytes = fake_memory_bytes();
};
Machine& machine() {
  static Machine instance;
  return instance;
}

/// Runs `work`, one thread at a time.
template <typename Work>
CudaResult attempt(const Work& work) {
  const std::scoped_lock lock(machine().mutex);
  try {
    return work();
  } catch (const ptx::MachineError& error) {
    machine().last_failure = error.what();
    return kLaunchFailed;
  }
}

/// All that a stream was asked for; what fails fails again.
CudaResult drain(CudaStreamTag& stream) {
  return attempt([&] {
    if (!stream.failure.empty()) throw ptx::MachineError(stream.failure);
    try {
      for (; !stream.work.empty(); stream.work.pop_front()) {
        if (!stream.work.front()()) return kCudaNotReady;
      }
    } catch (const ptx::MachineError& error) {
      stream.failure = error.what();
      throw;
    }
    return kCudaSuccess;
  });
}

/// Whether somebody has seen that work does not end.
std::atomic<bool> has_hung = false;

/// As a call that returns when the GPU is done.
void wait_for_gpu() {
  while (has_hung && fake_setting("MOESAIC_FAKE_HANGS", 0) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

thread_local int waiting_for_others = 0;  // of all streams of a rank

/// A real driver waits in such calls until the GPU is done, whatever the deadline of who calls.
void warn_of_waits(const char* call) {
  if (waiting_for_others == 0) return;
  std::fprintf(stderr, "fake driver: %s would wait for other ranks\n", call);
}

thread_local CudaStream captured_stream = nullptr;  // of this thread

/// Whether a call is not permitted now.
bool breaks_capture() {
  if (captured_stream == nullptr) return false;
  captured_stream->capture->is_broken = true;
  return true;
}

bool is_pinned(const void* data, std::size_t bytes) {
  const std::scoped_lock lock(machine().mutex);
  const auto* const first = static_cast<const std::byte*>(data);
  const auto after = machine().pinned.upper_bound(first);
  if (after == machine().pinned.begin()) return false;
  return first + bytes <= std::prev(after)->first + std::prev(after)->second;
}

void ask(CudaStream stream, std::function<bool()> work) {
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
  } else {
    stream->work.push_back(std::move(work));
  }
}

/// A copy that the host has a part in.
CudaResult ask_copy(CudaStream stream, const void* host, std::size_t bytes,
                    std::function<bool()> work) {
  if (stream->capture != nullptr && !is_pinned(host, bytes)) {
    stream->capture->is_broken = true;
    return kCaptureUnsupported;
  }
  ask(stream, std::move(work));
  return kCudaSuccess;
}

}  // namespace

namespace moesaic {

void fake_cuda_ask(CudaStream stream, const std::function<bool()>& work) {
  ++waiting_for_others;
  ++stream->waiting_for_others;
  stream->work.emplace_back([=] {
    if (!work()) return false;
    --waiting_for_others;
    --stream->waiting_for_others;
    return true;
  });
}
void fake_cuda_launch(CudaStream stream, const std::function<void()>& work) {
  stream->has_kernels = true;
  ask(stream, [=] {
    work();
    return true;
  });
}
void fake_cuda_give_up(CudaStream stream) {
  waiting_for_others -= stream->waiting_for_others;
  stream->waiting_for_others = 0;
  stream->work.clear();
}
void fake_cuda_read(CudaAddress from, void* to, std::int64_t bytes) {
  machine().memory.read(from, to, bytes);
}
void fake_cuda_write(CudaAddress to, const void* from, std::int64_t bytes) {
  machine().memory.write(to, from, bytes);
}

}  // namespace moesaic

extern "C" {

CudaResult cuInit(unsigned) {
  return kCudaSuccess;
}
CudaResult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake_setting("MOESAIC_FAKE_VERSION", 13000));
  return kCudaSuccess;
}
CudaResult cuGetErrorName(CudaResult result, const char** name) {
  *name = result == kLaunchFailed         ? "CUDA_ERROR_LAUNCH_FAILED"
          : result == kCaptureUnsupported ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : result == kCaptureInvalidated ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
          : result == kCapturedEvent      ? "CUDA_ERROR_CAPTURED_EVENT"
                                          : "CUDA_ERROR_UNKNOWN";
  return kCudaSuccess;
}
CudaResult cuGetErrorString(CudaResult result, const char** text) {
  *text = result == kLaunchFailed ? machine().last_failure.c_str() : "as the fake driver says";
  return kCudaSuccess;
}
CudaResult cuDevicePrimaryCtxRetain(CudaContext* context, CudaDevice) {
  *context = &machine().context;
  return kCudaSuccess;
}
CudaResult cuDevicePrimaryCtxRelease_v2(CudaDevice) {
  wait_for_gpu();
  return kCudaSuccess;
}
CudaResult cuCtxSetCurrent(CudaContext) {
  return kCudaSuccess;
}
CudaResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const std::scoped_lock lock(machine().mutex);
  *total = static_cast<std::size_t>(machine().memory_bytes);
  *free = *total - static_cast<std::size_t>(machine().memory.allocated_bytes());
  return kCudaSuccess;
}
CudaResult cuMemAlloc_v2(CudaAddress* address, std::size_t bytes) {
  if (breaks_capture()) return kCaptureUnsupported;
  warn_of_waits("cuMemAlloc");
  return attempt([&] {
    const auto size = static_cast<std::int64_t>(bytes);
    if (machine().memory.allocated_bytes() + size > machine().memory_bytes) return kCudaOutOfMemory;
    *address = machine().memory.allocate(size);
    return kCudaSuccess;
  });
}
CudaResult cuMemFree_v2(CudaAddress address) {
  if (breaks_capture()) return kCaptureUnsupported;
  warn_of_waits("cuMemFree");
  wait_for_gpu();
  return attempt([&] {
    machine().memory.release(address);
    return kCudaSuccess;
  });
}
CudaResult cuMemAllocHost_v2(void** data, std::size_t bytes) {
  if (breaks_capture()) return kCaptureUnsupported;
  *data = std::malloc(bytes);
  const std::scoped_lock lock(machine().mutex);
  if (*data != nullptr) machine().pinned[static_cast<const std::byte*>(*data)] = bytes;
  return *data != nullptr ? kCudaSuccess : kCudaOutOfMemory;
}
CudaResult cuMemFreeHost(void* data) {
  if (breaks_capture()) return kCaptureUnsupported;
  wait_for_gpu();
  const std::scoped_lock lock(machine().mutex);
  machine().pinned.erase(static_cast<const std::byte*>(data));
  std::free(data);
  return kCudaSuccess;
}
CudaResult cuMemcpyHtoDAsync_v2(CudaAddress to, const void* from, std::size_t bytes,
                                CudaStream stream) {
  return ask_copy(stream, from, bytes, [=] {
    machine().memory.write(to, from, static_cast<std::int64_t>(bytes));
    return true;
  });
}
CudaResult cuMemcpyDtoHAsync_v2(void* to, CudaAddress from, std::size_t bytes, CudaStream stream) {
  return ask_copy(stream, to, bytes, [=] {
    machine().memory.read(from, to, static_cast<std::int64_t>(bytes));
    machine().bytes_down += static_cast<long long>(bytes);
    if (fake_setting("MOESAIC_FAKE_FLIPS", 0) != 0) *static_cast<unsigned char*>(to) ^= 1;
    return true;
  });
}
CudaResult cuMemcpyDtoDAsync_v2(CudaAddress to, CudaAddress from, std::size_t bytes,
                                CudaStream stream) {
  ask(stream, [=] {
    std::vector<std::byte> copy(bytes);
    machine().memory.read(from, copy.data(), static_cast<std::int64_t>(bytes));
    machine().memory.write(to, copy.data(), static_cast<std::int64_t>(bytes));
    return true;
  });
  return kCudaSuccess;
}
CudaResult cuStreamCreate(CudaStream* stream, unsigned) {
  *stream = new CudaStreamTag;
  return kCudaSuccess;
}
CudaResult cuStreamDestroy_v2(CudaStream stream) {
  delete stream;
  return kCudaSuccess;
}
CudaResult cuEventCreate(CudaEvent* event, unsigned) {
  *event = new CudaEventTag;
  return kCudaSuccess;
}
CudaResult cuEventDestroy_v2(CudaEvent event) {
  delete event;
  return kCudaSuccess;
}
CudaResult cuEventRecord(CudaEvent event, CudaStream stream) {
  event->stream = stream;
  event->is_captured = stream->capture != nullptr;
  return kCudaSuccess;
}
CudaResult cuEventQuery(CudaEvent event) {
  if (breaks_capture()) return kCaptureUnsupported;
  if (event->is_captured) return kCapturedEvent;
  const long long hangs = fake_setting("MOESAIC_FAKE_HANGS", 0);
  if (hangs == 1 || (hangs == 2 && event->stream->has_kernels)) {
    has_hung = true;
    return kCudaNotReady;
  }
  return drain(*event->stream);
}
CudaResult cuStreamBeginCapture_v2(CudaStream stream, CudaCaptureMode) {
  if (stream->capture != nullptr || captured_stream != nullptr) return kInvalidValue;
  stream->capture = std::make_unique<CudaGraphTag>();
  captured_stream = stream;
  return kCudaSuccess;
}
CudaResult cuStreamEndCapture(CudaStream stream, CudaGraph* graph) {
  if (stream->capture == nullptr) return kInvalidValue;
  captured_stream = nullptr;
  const std::unique_ptr<CudaGraphTag> capture = std::move(stream->capture);
  *graph = capture->is_broken ? nullptr : new CudaGraphTag(*capture);
  return capture->is_broken ? kCaptureInvalidated : kCudaSuccess;
}
CudaResult cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  if (breaks_capture()) return kCaptureUnsupported;
  warn_of_waits("cuGraphInstantiate");
  *exec = new CudaGraphExecTag{*graph};
  return kCudaSuccess;
}
CudaResult cuGraphLaunch(CudaGraphExec exec, CudaStream stream) {
  if (stream->capture != nullptr) return kCaptureUnsupported;
  stream->work.insert(stream->work.end(), exec->work.begin(), exec->work.end());
  stream->has_kernels = true;
  return kCudaSuccess;
}
CudaResult cuGraphDestroy(CudaGraph graph) {
  delete graph;
  return kCudaSuccess;
}
CudaResult cuGraphExecDestroy(CudaGraphExec exec) {
  delete exec;
  return kCudaSuccess;
}
CudaResult cuModuleLoadData(CudaModule* module, const void* image) {
  if (breaks_capture()) return kCaptureUnsupported;
  const auto* const text = static_cast<const char*>(image);
  if (std::memcmp(text, "\177ELF", 4) == 0) return kCudaNoBinaryForGpu;
  return attempt([&] {
    *module = new CudaModuleTag(text);
    return kCudaSuccess;
  });
}
CudaResult cuModuleUnload(CudaModule module) {
  delete module;
  return kCudaSuccess;
}
CudaResult cuModuleGetFunction(CudaFunction* function, CudaModule module, const char* name) {
  if (!module->machine.has(name)) return kNotFound;
  module->functions.push_back(std::make_unique<CudaFunctionTag>(CudaFunctionTag{module, name}));
  *function = module->functions.back().get();
  return kCudaSuccess;
}
CudaResult cuLaunchKernel(CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned threads, unsigned threads_y, unsigned threads_z, unsigned shared,
                          CudaStream stream, void** parameters, void**) {
  if (grid_z != 1 || threads_y != 1 || threads_z != 1 || shared != 0) return kInvalidValue;
  const std::size_t bytes = function->module->machine.kernel(function->name).parameter_bytes;
  const auto* const begin = static_cast<const std::byte*>(parameters[0]);
  stream->has_kernels = true;
  if (fake_setting("MOESAIC_FAKE_FAILS", 0) != 0) {
    ask(stream, []() -> bool { throw ptx::MachineError("read outside of memory"); });
  }
  ask(stream, [=, copy = std::vector<std::byte>(begin, begin + bytes)] {
    function->module->machine.run(
        function->name, {.grid_x = grid_x, .grid_y = grid_y, .threads = threads}, copy,
        {machine().memory, static_cast<int>(fake_setting("MOESAIC_FAKE_CHIP", 90))});
    return true;
  });
  return kCudaSuccess;
}

}  // extern "C"
