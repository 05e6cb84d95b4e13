#include "base/device.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "base/core_yield.h"
#include "base/error.h"

namespace moesaic {
namespace {

constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kEventWithoutTiming = 2;

std::string uuid_text(const CudaUuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < std::size(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

DeviceInfo describe(const CudaDriver& driver, int index) {
  CudaDevice device = 0;
  driver.check(driver.device_get(&device, index), "cuDeviceGet");
  std::array<char, 256> name{};
  driver.check(driver.device_name(name.data(), name.size() - 1, device), "cuDeviceGetName");
  CudaUuid uuid{};
  driver.check(driver.device_uuid(&uuid, device), "cuDeviceGetUuid");
  std::size_t memory = 0;
  driver.check(driver.device_memory(&memory, device), "cuDeviceTotalMem");
  const auto attribute = [&](CudaAttribute which) {
    int value = 0;
    driver.check(driver.device_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  return {.index = index,
          .name = name.data(),
          .uuid = uuid_text(uuid),
          .chip = attribute(CudaAttribute::compute_major) * 10 +
                  attribute(CudaAttribute::compute_minor),
          .multiprocessors = attribute(CudaAttribute::multiprocessors),
          .memory_bytes = static_cast<std::int64_t>(memory),
          .cache_bytes = attribute(CudaAttribute::cache_bytes)};
}

std::atomic<bool>& lost_device() noexcept {
  static std::atomic<bool> is_lost = false;
  return is_lost;
}

}  // namespace

bool has_lost_device() noexcept {
  return lost_device();
}

std::vector<DeviceInfo> visible_devices(const CudaDriver& driver) {
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < driver.num_devices(); ++index) {
    devices.push_back(describe(driver, index));
  }
  return devices;
}

Device::Device(std::shared_ptr<const CudaDriver> driver, std::span<const DeviceImage> images,
               DeviceInfo info)
    : driver_(std::move(driver)), images_(images), info_(std::move(info)) {}

// What throws in here is behind a constructor that has ended: the destructor gives back the rest.
Device::Device(std::shared_ptr<const CudaDriver> driver, int index,
               std::span<const DeviceImage> images)
    : Device(driver, images, describe(*driver, index)) {
  driver_->check(driver_->device_get(&device_, index), "cuDeviceGet");
  driver_->check(driver_->context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  make_current();
  check(driver_->stream_create(&stream_, kNonBlockingStream), "cuStreamCreate");
  check(driver_->event_create(&event_, kEventWithoutTiming), "cuEventCreate");
}

Device::~Device() {
  if (context_ == nullptr || is_lost_) return;
  driver_->context_set(context_);
  for (const auto& [name, module] : modules_) driver_->module_unload(module);
  if (event_ != nullptr) driver_->event_destroy(event_);
  if (stream_ != nullptr) driver_->stream_destroy(stream_);
  driver_->context_release(device_);
}

/// Ranks that are threads have a context each, or the same one; the current one is the thread's.
CudaStream Device::make_current() const {
  driver_->check(driver_->context_set(context_), "cuCtxSetCurrent");
  return stream_;
}

void Device::check(CudaResult result, std::string_view what) const {
  if (result == kCudaSuccess) [[likely]]
    return;
  driver_->check(result, fmt::format("{} on GPU {} ({})", what, info_.index, info_.name));
}

std::int64_t Device::free_bytes() const {
  make_current();
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver_->memory_info(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(free);
}

DeviceBuffer Device::allocate(std::int64_t bytes) {
  make_current();
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  const CudaResult result = driver_->allocate(&buffer.address_, static_cast<std::size_t>(bytes));
  require(result != kCudaOutOfMemory, ErrorKind::resource,
          "GPU {} ({}) has no {} bytes left: {} of {} are free", info_.index, info_.name, bytes,
          free_bytes(), info_.memory_bytes);
  check(result, "cuMemAlloc");
  buffer.device_ = this;
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer Device::allocate_pinned(std::int64_t bytes) {
  make_current();
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  check(driver_->allocate_host(&buffer.data_, static_cast<std::size_t>(bytes)), "cuMemAllocHost");
  buffer.device_ = this;
  buffer.bytes_ = bytes;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (device_ == nullptr || device_->is_lost_) return;
  device_->driver_->context_set(device_->context_);
  device_->driver_->release(address_);
}

PinnedBuffer::~PinnedBuffer() {
  if (device_ == nullptr || device_->is_lost_) return;
  device_->driver_->context_set(device_->context_);
  device_->driver_->release_host(data_);
}

void Device::upload(CudaAddress to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  make_current();
  check(driver_->upload(to, from, static_cast<std::size_t>(bytes), stream_), "cuMemcpyHtoDAsync");
}

void Device::download(void* to, CudaAddress from, std::int64_t bytes) {
  if (bytes == 0) return;
  make_current();
  check(driver_->download(to, from, static_cast<std::size_t>(bytes), stream_), "cuMemcpyDtoHAsync");
}

void Device::copy(CudaAddress to, CudaAddress from, std::int64_t bytes) {
  if (bytes == 0) return;
  make_current();
  check(driver_->copy(to, from, static_cast<std::size_t>(bytes), stream_), "cuMemcpyDtoDAsync");
}

/// The chip's own code, or else PTX: that is what a driver gets for a chip which came later, and
/// one that does not take the code.
CudaModule Device::load_image(std::string_view name) {
  CudaModule module = nullptr;
  CudaResult result = kCudaNoBinaryForGpu;
  for (const bool is_ptx : {false, true}) {
    for (const DeviceImage& image : images_) {
      const bool fits = is_ptx ? image.chip <= info_.chip : image.chip == info_.chip;
      if (image.module != name || image.is_ptx != is_ptx || !fits) continue;
      result = driver_->module_load(&module, image.bytes);
      if (result == kCudaSuccess) return module;
      if (result != kCudaNoBinaryForGpu) check(result, fmt::format("kernels {}", name));
    }
  }
  fail(ErrorKind::resource, "GPU {} ({}, sm_{}) can have no kernels {}: {}", info_.index,
       info_.name, info_.chip, name,
       info_.chip < kLeastChip ? "they are made for sm_80 and later" : "none were built for it");
}

CudaModule Device::module(std::string_view name) {
  const auto found = modules_.find(name);
  if (found != modules_.end()) return found->second;
  return modules_.emplace(name, load_image(name)).first->second;
}

CudaFunction Device::kernel(std::string_view module_name, const std::string& name) {
  make_current();
  CudaFunction function = nullptr;
  check(driver_->module_function(&function, module(module_name), name.c_str()),
        fmt::format("kernel {} of {}", name, module_name));
  kernel_names_[function] = fmt::format("{} of {}", name, module_name);
  return function;
}

/// What an error may come from: it shows later than it happens.
std::string Device::pending_text() const {
  if (pending_.empty()) return "a copy";
  std::vector<std::string_view> names;
  for (const std::string* const name : pending_) names.push_back(*name);
  return fmt::format("{} {}", names.size() == 1 ? "kernel" : "kernels", fmt::join(names, ", "));
}

void Device::launch(CudaFunction kernel, const Launch& shape, void* parameters) {
  make_current();
  std::array<void*, 1> arguments = {parameters};
  add_pending(kernel_names_.at(kernel));
  check(driver_->launch(kernel, shape.grid_x, shape.grid_y, 1, shape.threads, 1, 1, 0, stream_,
                        arguments.data(), nullptr),
        fmt::format("cuLaunchKernel of {}", kernel_names_.at(kernel)));
}

void Device::launch(const std::string& name, const std::function<void(CudaStream)>& ask) {
  const CudaStream stream = make_current();
  add_pending(*library_names_.insert(name).first);
  ask(stream);
}

void Device::add_pending(const std::string& name) {
  if (std::ranges::find(pending_, &name) == pending_.end()) pending_.push_back(&name);
}

DeviceGraph Device::capture(const std::function<void()>& work) {
  make_current();
  check(driver_->begin_capture(stream_, CudaCaptureMode::thread_local_calls),
        "cuStreamBeginCapture");
  DeviceGraph graph;
  graph.device_ = this;
  graph.kernels_.swap(pending_);
  CudaGraph captured = nullptr;
  const auto end = [&] {
    graph.kernels_.swap(pending_);
    return driver_->end_capture(stream_, &captured);
  };
  try {
    work();
  } catch (...) {
    if (end() == kCudaSuccess) driver_->graph_destroy(captured);
    throw;
  }
  check(end(), "cuStreamEndCapture");
  const CudaResult result = driver_->graph_instantiate(&graph.exec_, captured, 0);
  driver_->graph_destroy(captured);
  check(result, "cuGraphInstantiate");
  return graph;
}

void Device::launch(const DeviceGraph& graph) {
  make_current();
  for (const std::string* const name : graph.kernels_) add_pending(*name);
  check(driver_->graph_launch(graph.exec_, stream_),
        fmt::format("cuGraphLaunch of {} kernels", graph.kernels_.size()));
}

DeviceGraph::~DeviceGraph() {
  if (exec_ == nullptr || device_->is_lost_) return;
  device_->driver_->context_set(device_->context_);
  device_->driver_->graph_exec_destroy(exec_);
}

void Device::mark() {
  make_current();
  check(driver_->event_record(event_, stream_), "cuEventRecord");
}

bool Device::reached_mark() {
  make_current();
  const CudaResult result = driver_->event_query(event_);
  if (result == kCudaNotReady) return false;
  if (result != kCudaSuccess) check(result, pending_text());
  pending_.clear();
  return true;
}

void Device::wait_for_mark(double seconds, const std::function<void()>& meanwhile) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  CoreYield core;
  while (!reached_mark()) {
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() >= seconds) {
      is_lost_ = true;
      lost_device() = true;
      fail(ErrorKind::peer, "GPU {} ({}) has not finished {} within {} s", info_.index, info_.name,
           pending_text(), seconds);
    }
    if (meanwhile) meanwhile();
    core.pass();
  }
}

void make_room(DeviceBuffer& buffer, std::int64_t bytes, Device& device) {
  if (bytes <= buffer.bytes()) return;
  buffer = DeviceBuffer();
  buffer = device.allocate(with_reserve(bytes));
}

void make_room(PinnedBuffer& buffer, std::int64_t bytes, Device& device) {
  if (bytes <= buffer.bytes()) return;
  buffer = PinnedBuffer();
  buffer = device.allocate_pinned(with_reserve(bytes));
}

}  // namespace moesaic
