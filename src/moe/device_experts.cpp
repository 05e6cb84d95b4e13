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
    const MlpBiases& biases = expert.biases;
    require(biases.gate == nullptr && biases.up == nullptr && biases.down == nullptr,
            ErrorKind::internal, "experts on a GPU take no biases");
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

DeviceExperts::DeviceExperts(std::span<const AdaptedMlp> experts, const SlotMask& own,
                             DeviceExpertsWorkspace& work)
    : work_(&work),
      mlps_({.device = work.device,
             .scratch = work.scratch,
             .kernels = work.kernels,
             .nvfp4_activations = work.nvfp4_activations,
             .library = work.library},
            weights_of(experts, own)) {
  std::int32_t next = 0;
  for (const bool is_own : own) mlps_of_slots_.push_back(is_own ? next++ : -1);
}

/// Which outputs of the batch are of this GPU's experts.
void DeviceExperts::make_parts(const ExpertBatch& batch) {
  groups_.clear();
  parts_.clear();
  std::int64_t row = 0;
  for (std::size_t slot = 0; slot + 1 < batch.slot_begin.size(); ++slot) {
    const std::int32_t mlp = mlps_of_slots_[batch.first_slot + slot];
    const std::int64_t first = batch.slot_begin[slot] - batch.slot_begin.front();
    const std::int64_t count = batch.slot_begin[slot + 1] - batch.slot_begin[slot];
    if (mlp < 0 || count == 0) continue;
    groups_.push_back({mlp, row, count});
    parts_.push_back({row, first, count});
    row += count;
  }
}

/// Their rows, and of these the ones that are different.
void DeviceExperts::choose_rows(const ExpertBatch& batch) {
  row_inputs_.clear();
  input_rows_.clear();
  work_->input_places.clear();
  for (const Part& part : parts_) {
    for (const std::byte* const row : batch.rows.subspan(
             static_cast<std::size_t>(part.first_output), static_cast<std::size_t>(part.count))) {
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
  take_results(batch, work_->results.address(), num_rows());
}

void DeviceExperts::take_results(const ExpertBatch& batch, CudaAddress results, std::int64_t rows) {
  const std::int64_t bytes = rows * mlps_.hidden() * 4;
  work_->device.download(work_->host_results.data(), results, bytes);
  work_->device.mark();
  outputs_ = batch.outputs;
}

/// Those for experts here. False: more than a graph takes, or none.
bool DeviceExperts::choose_inputs(const InputChoices& choices) {
  own_inputs_.clear();
  const auto topk = static_cast<std::size_t>(choices.topk);
  for (std::size_t input = 0; input < choices.rows.size(); ++input) {
    const auto experts = std::span(choices.experts).subspan(input * topk, topk);
    const bool is_own = std::ranges::any_of(experts, [&](std::int32_t expert) {
      return mlps_of_experts_[static_cast<std::size_t>(expert)] >= 0;
    });
    if (is_own) own_inputs_.push_back(static_cast<std::int64_t>(input));
  }
  return work_->graphs->takes(std::ssize(own_inputs_), choices.topk);
}

/// The GPU finds the rows of its experts; which results they have is known here too.
void DeviceExperts::launch_graph(const ExpertBatch& batch) {
  DeviceGraphMemory& memory = *work_->graphs;
  const InputChoices& choices = *batch.choices;
  const std::int64_t inputs = std::ssize(own_inputs_);
  const DeviceGraphMemory::Inputs at =
      memory.inputs_of(DeviceGraphMemory::budget_of(inputs), choices.topk);
  std::byte* const host = memory.host_inputs.data();
  const std::int64_t row_bytes = mlps_.hidden() * 2;
  const std::int64_t id_bytes = choices.topk * 4;
  for (std::int64_t i = 0; i < inputs; ++i) {
    const auto input = static_cast<std::size_t>(own_inputs_[static_cast<std::size_t>(i)]);
    std::memcpy(host + i * row_bytes, choices.rows[input], static_cast<std::size_t>(row_bytes));
    std::memcpy(host + at.experts + i * id_bytes,
                choices.experts.data() + static_cast<std::int64_t>(input) * choices.topk,
                static_cast<std::size_t>(id_bytes));
  }
  const auto count = narrow<std::int32_t>(inputs);
  std::memcpy(host + at.count, &count, sizeof(count));
  const std::int64_t rows = parts_.back().first_row + parts_.back().count;
  make_room(work_->host_results,  // for any batch of this graph: it grows no more
            DeviceGraphMemory::budget_of(inputs) * choices.topk * mlps_.hidden() * 4,
            work_->device);
  graphs_->launch({.inputs = inputs, .topk = choices.topk, .results = GraphResults::rows});
  take_results(batch, memory.results.address(), rows);
}

void DeviceExperts::start(const ExpertBatch& batch) {
  require(batch.keep == nullptr, ErrorKind::usage, "experts on a GPU cannot be trained");
  make_parts(batch);
  if (parts_.empty()) return;
  work_->naming_place([&] {
    if (batch.choices != nullptr && graphs_ && choose_inputs(*batch.choices)) {
      launch_graph(batch);
    } else {
      choose_rows(batch);
      upload_inputs(batch);
    }
  });
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

void DeviceExperts::start_sums(std::int64_t num_inputs, std::int64_t topk) {
  graphs_->launch({.inputs = num_inputs, .topk = topk, .results = GraphResults::sums});
}

void DeviceExperts::tell_placement(const ExpertPlacement& placement, int own_rank) {
  if (work_->graphs == nullptr || graphs_) return;
  mlps_of_experts_.assign(static_cast<std::size_t>(placement.num_experts()), -1);
  const std::span<const ExpertId> own = placement.experts_of(own_rank);
  for (std::size_t slot = 0; slot < own.size(); ++slot) {
    mlps_of_experts_[static_cast<std::size_t>(own[slot])] = mlps_of_slots_[slot];
  }
  work_->naming_place([&] { graphs_.emplace(*work_->graphs, mlps_, mlps_of_experts_); });
}

bool DeviceExperts::has(std::span<const ExpertId> slots) const noexcept {
  return std::ranges::all_of(
      slots, [&](ExpertId slot) { return mlps_of_slots_[static_cast<std::size_t>(slot)] >= 0; });
}

void DeviceExperts::backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) {
  fail(ErrorKind::usage, "experts on a GPU cannot be trained");
}

}  // namespace moesaic
