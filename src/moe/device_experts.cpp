#include "src/moe/device_experts.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kInputAlignment = 16;

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

}  // namespace

void DeviceExpertsWorkspace::naming_place(const std::function<void()>& work) const {
  try {
    work();
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", ranks.place().at("experts").text(), error.what());
  }
}

std::int64_t DevicePassShape::rounded_bytes(std::int64_t inputs, std::int64_t rows) const noexcept {
  if (activations == Nvfp4Activations::bf16) return 0;
  return std::max(inputs * rounded_row_bytes(hidden), rows * rounded_row_bytes(width));
}

std::int64_t device_pass_bytes(std::int64_t rows, const DevicePassShape& expert) {
  const std::int64_t row = 2 * expert.hidden + 2 * expert.width + 4 * expert.hidden + 4;
  return with_reserve(rows * (row + static_cast<std::int64_t>(sizeof(cuda::MlpTile))) +
                      expert.rounded_bytes(rows, rows));
}

std::int64_t pinned_pass_bytes(std::int64_t rows, std::int64_t hidden) {
  return with_reserve(rows * (2 * hidden + 4 * hidden + 4));
}

DeviceExperts::DeviceExperts(std::span<const AdaptedMlp> experts, const SlotMask& own,
                             DeviceExpertsWorkspace& work)
    : work_(&work),
      mlps_({.device = work.device,
             .scratch = work.scratch,
             .kernels = work.kernels,
             .nvfp4_activations = work.nvfp4_activations},
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
  make_room(work_->host_inputs, bytes, device);
  make_room(work_->inputs, bytes, device);
  make_room(work_->host_results, result_bytes, device);
  make_room(work_->results, result_bytes, device);
  std::byte* to = work_->host_inputs.data();
  for (const std::byte* const row : input_rows_) {
    std::memcpy(to, row, static_cast<std::size_t>(row_bytes));
    to += row_bytes;
  }
  std::memcpy(work_->host_inputs.data() + indices_at, row_inputs_.data(), row_inputs_.size() * 4);
  device.upload(work_->inputs.address(), work_->host_inputs.data(), bytes);
  mlps_.start({.x = work_->inputs.address(),
               .num_inputs = std::ssize(input_rows_),
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
  if (num_rows() > 0) work_->naming_place([&] { upload_inputs(batch); });
}

void DeviceExperts::finish() {
  if (parts_.empty()) return;
  work_->naming_place([&] {
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

void DeviceExperts::make_room_there(std::int64_t num_rows, std::int64_t num_inputs) {
  mlps_.make_room(num_rows, num_inputs);
}

void DeviceExperts::start_there(const DeviceMlps::Pass& pass,
                                std::span<const std::int64_t> slot_begin) {
  groups_.clear();
  for (std::size_t slot = 0; slot + 1 < slot_begin.size(); ++slot) {
    const std::int64_t count = slot_begin[slot + 1] - slot_begin[slot];
    if (count > 0) groups_.push_back({mlps_of_slots_[slot], slot_begin[slot], count});
  }
  if (!groups_.empty()) mlps_.start(pass, groups_);
}

DeviceExperts* DeviceExperts::all_on_device() noexcept {
  return std::ranges::find(mlps_of_slots_, -1) == mlps_of_slots_.end() ? this : nullptr;
}

void DeviceExperts::backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) {
  fail(ErrorKind::usage, "experts on a GPU cannot be trained");
}

}  // namespace moesaic
