#include "src/moe/device_experts.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kInputAlignment = 16;

/// Buffers grow by a quarter more than they have to.
constexpr std::int64_t with_reserve(std::int64_t bytes) {
  return bytes + bytes / 4;
}

/// Makes room for at least so many bytes; contents are lost.
template <typename Buffer, typename Allocate>
void make_room(Buffer& buffer, std::int64_t bytes, const Allocate& allocate) {
  if (bytes <= buffer.bytes()) return;
  buffer = Buffer();
  buffer = allocate(with_reserve(bytes));
}

std::vector<MlpWeights> weights_of(std::span<const AdaptedMlp> experts, const SlotMask& own) {
  std::vector<MlpWeights> weights;
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    if (!own[slot]) continue;
    const AdaptedMlp& expert = experts[slot];
    require(expert.gate == nullptr && expert.up == nullptr && expert.down == nullptr,
            ErrorKind::usage, "experts on a GPU take no adapters");
    weights.push_back(expert.weights);
  }
  return weights;
}

/// Says in which layer an error was.
template <typename Call>
void naming_place(const DeviceExpertsWorkspace& work, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", work.ranks.place().at("experts").text(), error.what());
  }
}

}  // namespace

std::int64_t device_pass_bytes(std::int64_t rows, std::int64_t hidden, std::int64_t width) {
  const std::int64_t row = 2 * hidden + 2 * width + 4 * hidden + 4;
  return with_reserve(rows * (row + static_cast<std::int64_t>(sizeof(cuda::MlpTile))));
}

std::int64_t pinned_pass_bytes(std::int64_t rows, std::int64_t hidden) {
  return with_reserve(rows * (2 * hidden + 4 * hidden + 4));
}

DeviceExperts::DeviceExperts(std::span<const AdaptedMlp> experts, const SlotMask& own,
                             DeviceExpertsWorkspace& work)
    : work_(&work),
      mlps_({.device = work.device, .scratch = work.scratch, .kernels = work.kernels},
            weights_of(experts, own)) {
  std::int32_t next = 0;
  for (const bool is_own : own) mlps_of_slots_.push_back(is_own ? next++ : -1);
}

/// The rows that this GPU's experts get, and of them those that are different.
void DeviceExperts::choose_rows(const ExpertBatch& batch) {
  groups_.clear();
  parts_.clear();
  row_inputs_.clear();
  input_rows_.clear();
  work_->input_places.clear();
  for (std::size_t slot = 0; slot + 1 < batch.slot_begin.size(); ++slot) {
    const std::int32_t mlp = mlps_of_slots_[batch.first_slot + slot];
    const std::int64_t first = batch.slot_begin[slot] - batch.slot_begin.front();
    const std::int64_t count = batch.slot_begin[slot + 1] - batch.slot_begin[slot];
    if (mlp < 0 || count == 0) continue;
    groups_.push_back({mlp, num_rows(), count});
    parts_.push_back({num_rows(), first, count});
    for (const std::byte* const row :
         batch.rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))) {
      const auto [place, is_new] =
          work_->input_places.try_emplace(row, narrow<std::int32_t>(input_rows_.size()));
      if (is_new) input_rows_.push_back(row);
      row_inputs_.push_back(place->second);
    }
  }
}

/// Rows and their indices go up in one copy.
void DeviceExperts::upload_inputs(const ExpertBatch& batch) {
  Device& device = work_->device;
  const std::int64_t row_bytes = mlps_.hidden() * 2;
  const std::int64_t indices_at = round_up(std::ssize(input_rows_) * row_bytes, kInputAlignment);
  const std::int64_t bytes = indices_at + num_rows() * 4;
  const std::int64_t result_bytes = num_rows() * mlps_.hidden() * 4;
  make_room(work_->host_inputs, bytes, [&](auto size) { return device.allocate_pinned(size); });
  make_room(work_->inputs, bytes, [&](auto size) { return device.allocate(size); });
  make_room(work_->host_results, result_bytes,
            [&](auto size) { return device.allocate_pinned(size); });
  make_room(work_->results, result_bytes, [&](auto size) { return device.allocate(size); });
  std::byte* to = work_->host_inputs.data();
  for (const std::byte* const row : input_rows_) {
    std::memcpy(to, row, static_cast<std::size_t>(row_bytes));
    to += row_bytes;
  }
  std::memcpy(work_->host_inputs.data() + indices_at, row_inputs_.data(), row_inputs_.size() * 4);
  device.upload(work_->inputs.address(), work_->host_inputs.data(), bytes);
  mlps_.start({.x = work_->inputs.address(),
               .row_indices = work_->inputs.address() + static_cast<CudaAddress>(indices_at),
               .num_rows = num_rows(),
               .y = work_->results.address()},
              groups_);
  device.download(work_->host_results.data(), work_->results.address(), result_bytes);
  device.mark();
  outputs_ = batch.outputs;
}

void DeviceExperts::start(const ExpertBatch& batch) {
  require(batch.keep == nullptr, ErrorKind::usage, "experts on a GPU cannot be trained");
  choose_rows(batch);
  if (num_rows() > 0) naming_place(*work_, [&] { upload_inputs(batch); });
}

void DeviceExperts::finish() {
  if (parts_.empty()) return;
  naming_place(*work_, [&] {
    work_->device.wait_for_mark(work_->deadline_seconds, [&] { work_->ranks.progress(); });
  });
  const std::int64_t hidden = mlps_.hidden();
  const auto* const results = reinterpret_cast<const float*>(work_->host_results.data());
  for (const Part& part : parts_) {
    for (std::int64_t row = 0; row < part.count; ++row) {
      std::copy_n(results + (part.first_row + row) * hidden, hidden,
                  outputs_.row(part.first_output + row).data());
    }
  }
  parts_.clear();
}

void DeviceExperts::backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) {
  fail(ErrorKind::usage, "experts on a GPU cannot be trained");
}

}  // namespace moesaic
