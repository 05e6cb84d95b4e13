#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda_driver.h"

namespace moesaic {

/// A GPU as its driver describes it.
struct DeviceInfo {
  int index = 0;  // among the visible ones
  std::string name;
  std::string uuid;
  int chip = 0;  // 90 for sm_90
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t cache_bytes = 0;  // of all multiprocessors together
};

/// The oldest chip that there are kernels for.
inline constexpr int kLeastChip = 80;

/// Whether a wait for a GPU of this process has come to its deadline: then nothing may wait for the
/// driver any more, as giving back memory does, and the end of a process.
[[nodiscard]] bool has_lost_device() noexcept;

/// Those that the driver shows, which obeys CUDA_VISIBLE_DEVICES.
[[nodiscard]] std::vector<DeviceInfo> visible_devices(const CudaDriver& driver);

/// Code of a module for one chip, or PTX, which the driver compiles for any chip from `chip` on.
struct DeviceImage {
  std::string_view module;
  int chip = 0;
  bool is_ptx = false;
  const char* bytes = nullptr;  // PTX ends with a zero
};

/// Device memory or page-locked memory of the host; freed with this.
class DeviceBuffer;
class PinnedBuffer;
/// Work that was asked for once and can be launched again and again; freed with this.
class DeviceGraph;

/// One GPU and one order of work on it: copies and launches happen one after the other, while the
/// host goes on. The only door to a GPU. Used by one thread at a time. Throws Error{resource} for
/// what the driver reports; after an error of a kernel every call does.
class Device {
 public:
  /// `images` outlive this.
  Device(std::shared_ptr<const CudaDriver> driver, int index, std::span<const DeviceImage> images);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceInfo& info() const noexcept { return info_; }
  [[nodiscard]] std::int64_t free_bytes() const;
  /// Libraries that this thread calls use this GPU from now on; what they are to do in its order
  /// goes where this says.
  CudaStream make_current() const;

  [[nodiscard]] DeviceBuffer allocate(std::int64_t bytes);
  [[nodiscard]] PinnedBuffer allocate_pinned(std::int64_t bytes);

  /// Host memory stays as it is until the copy has happened; it should be page-locked.
  void upload(CudaAddress to, const void* from, std::int64_t bytes);
  void download(void* to, CudaAddress from, std::int64_t bytes);
  /// From one place of the GPU's memory to another.
  void copy(CudaAddress to, CudaAddress from, std::int64_t bytes);

  /// Throws Error{resource} for a module that has no image for this chip.
  [[nodiscard]] CudaFunction kernel(std::string_view module, const std::string& name);

  struct Launch {
    unsigned grid_x = 1;
    unsigned grid_y = 1;
    unsigned threads = 32;
  };
  /// `parameters`: the kernel's one parameter; copied.
  void launch(CudaFunction kernel, const Launch& shape, void* parameters);
  /// Kernels of a library, for which `ask` asks in the order that it is given; errors call them
  /// `name`.
  void launch(const std::string& name, const std::function<void(CudaStream)>& ask);

  /// What `work` asks for, copies and launches, which do not happen now: the graph has their
  /// addresses, shapes and parameters, and of memory what is there when it runs. Whatever takes or
  /// gives back memory, loads a module or waits fails inside, as do copies of memory that is not
  /// page-locked.
  [[nodiscard]] DeviceGraph capture(const std::function<void()>& work);
  /// Asks for all of it at once.
  void launch(const DeviceGraph& graph);

  /// Marks what has been asked for so far.
  void mark();
  /// Whether all that stood before the last mark has happened. Never blocks.
  [[nodiscard]] bool reached_mark();
  /// Until it has; meanwhile other ranks get the core, and `meanwhile` is called again and again.
  /// Throws Error{peer} after `seconds`, and what `meanwhile` throws. The first leaves the GPU and
  /// all that is there to the end of the process.
  void wait_for_mark(double seconds, const std::function<void()>& meanwhile = {});

 private:
  friend class DeviceBuffer;
  friend class PinnedBuffer;
  friend class DeviceGraph;
  /// Of nothing that its destructor would have to give back.
  Device(std::shared_ptr<const CudaDriver> driver, std::span<const DeviceImage> images,
         DeviceInfo info);
  void add_pending(const std::string& name);
  void check(CudaResult result, std::string_view what) const;
  [[nodiscard]] CudaModule module(std::string_view name);
  [[nodiscard]] CudaModule load_image(std::string_view name);
  [[nodiscard]] std::string pending_text() const;

  std::shared_ptr<const CudaDriver> driver_;
  std::span<const DeviceImage> images_;
  DeviceInfo info_;
  CudaDevice device_ = 0;
  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaEvent event_ = nullptr;
  std::map<std::string, CudaModule, std::less<>> modules_;
  std::map<CudaFunction, std::string> kernel_names_;  // "gate_up of portable/nvfp4"
  std::set<std::string> library_names_;               // of kernels of libraries
  std::vector<const std::string*> pending_;           // launched since a mark was reached
  bool is_lost_ = false;
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();

  [[nodiscard]] CudaAddress address() const noexcept { return address_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  CudaAddress address_ = 0;
  std::int64_t bytes_ = 0;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

class DeviceGraph {
 public:
  DeviceGraph() = default;
  DeviceGraph(DeviceGraph&& other) noexcept { *this = std::move(other); }
  DeviceGraph& operator=(DeviceGraph&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(exec_, other.exec_);
    std::swap(kernels_, other.kernels_);
    return *this;
  }
  ~DeviceGraph();

 private:
  friend class Device;
  Device* device_ = nullptr;
  CudaGraphExec exec_ = nullptr;
  std::vector<const std::string*> kernels_;  // that it launches
};

/// What a buffer that has to grow takes for so many bytes: a quarter more.
[[nodiscard]] constexpr std::int64_t with_reserve(std::int64_t bytes) noexcept {
  return bytes + bytes / 4;
}
/// Makes room for at least so many bytes; contents are lost. Where a buffer grows nothing should be
/// under way: memory is given back when all is done.
void make_room(DeviceBuffer& buffer, std::int64_t bytes, Device& device);
void make_room(PinnedBuffer& buffer, std::int64_t bytes, Device& device);

}  // namespace moesaic
