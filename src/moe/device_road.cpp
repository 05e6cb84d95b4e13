#include "src/moe/device_road.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kListAlignment = 16;
constexpr std::int64_t kRowBytes = 2;     // of an element of rows
constexpr std::int64_t kResultBytes = 4;  // and of results

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Where each choice's result is among [outputs, then results from other ranks].
std::vector<std::int32_t> result_places(const ExchangePlan& plan) {
  const auto outputs = narrow<std::int32_t>(plan.execute.num_outputs());
  std::vector<std::int32_t> places;
  for (std::size_t choice = 0; choice < plan.send.return_rows.size(); ++choice) {
    const std::int32_t row = plan.send.return_rows[choice];
    places.push_back(row >= 0 ? outputs + row : plan.execute.own_outputs[choice]);
  }
  return places;
}

/// Of each of so many sources; 0: they are not told.
std::int64_t choices_of_each(std::span<const std::int32_t> choices, std::int64_t sources) {
  return sources > 0 ? std::ssize(choices) / sources : 0;
}

}  // namespace

std::int64_t device_road_bytes(const RoadRows& rows, const DevicePassShape& expert) {
  const std::int64_t hidden = expert.hidden;
  const std::int64_t choices = rows.tokens * rows.topk;
  const std::int64_t from_others = rows.ranks > 1 ? choices : 0;
  const std::int64_t to_others = rows.ranks > 1 ? std::max(rows.outputs, rows.tokens) : 0;
  const std::int64_t inner =
      expert.width * kRowBytes + static_cast<std::int64_t>(sizeof(cuda::MlpTile));
  const std::int64_t lists = 4 * (to_others * 2 + rows.outputs + choices * 2);
  const std::int64_t sources = rows.tokens + rows.received;
  return with_reserve(sources * hidden * kRowBytes + rows.outputs * inner +
                      (rows.outputs + from_others + to_others + rows.tokens) * hidden *
                          kResultBytes +
                      lists + expert.rounded_bytes(sources, rows.outputs));
}

DeviceRoad::DeviceRoad(DeviceExpertsWorkspace& work, NcclRanks* ranks)
    : work_(work), ranks_(ranks), moves_(work.device) {}

std::byte* DeviceRoad::rows(std::int64_t tokens, std::int64_t hidden) {
  tokens_ = tokens;
  hidden_ = hidden;
  ++num_batches_;
  if (plans(tokens)) return work_.graphs->host_inputs.data();
  make_room(host_rows(), tokens * hidden * kRowBytes, work_.device);
  return host_rows().data();
}

/// Through a graph's memory sources lie in the order of ranks, as its plan has them, else the own
/// ones come first; results of other ranks lie behind those made here.
DeviceRoad::Places DeviceRoad::places_of(const ExchangePlan& plan, const OwnExperts& experts) {
  Places places{.num_sources = tokens_ + sum_of(plan.recv_counts),
                .received_counts = plan.recv_counts};
  const std::int64_t topk = choices_of_each(experts.choices, places.num_sources);
  places.is_graph = experts.there != nullptr && work_.graphs != nullptr && topk > 0 &&
                    work_.graphs->takes(places.num_sources, topk);
  make_room_for(plan, places);
  const std::int64_t row_bytes = hidden_ * kRowBytes;
  if (!places.is_graph) {
    places.own = sources().address();
    places.received = places.own + static_cast<CudaAddress>(tokens_ * row_bytes);
    places.results = results().address();
    return places;
  }
  const auto own = static_cast<std::size_t>(work_.ranks.rank());
  const std::int64_t before = sum_of(std::span(plan.recv_counts).first(own));
  places.received = work_.graphs->inputs.address();
  places.own = places.received + static_cast<CudaAddress>(before * row_bytes);
  places.received_counts[own] = tokens_;
  places.results = work_.graphs->results.address();
  return places;
}

/// Before anything of the batch is under way: what grows gives memory back, and that waits.
void DeviceRoad::make_room_for(const ExchangePlan& plan, const Places& places) {
  Device& device = work_.device;
  const std::int64_t row_bytes = hidden_ * kRowBytes;
  const std::int64_t result_bytes = hidden_ * kResultBytes;
  const std::int64_t num_results = plan.execute.num_outputs() + sum_of(plan.send.return_counts);
  if (!places.is_graph) {
    make_room(sources(), places.num_sources * row_bytes, device);
    make_room(results(), num_results * result_bytes, device);
  }
  make_room(sent_,
            std::max(std::ssize(plan.send.send_tokens) * row_bytes,
                     std::ssize(plan.execute.return_outputs) * result_bytes),
            device);
  make_room(sums_, tokens_ * result_bytes, device);
  make_room(host_sums(), tokens_ * result_bytes, device);
}

/// All lists go up in one copy.
void DeviceRoad::upload_lists(const Routing& routing, const ExchangePlan& plan) {
  const std::vector<std::int32_t> places = result_places(plan);
  at_ = {};
  const auto for_each_list = [&](const auto& call) {
    call(at_.send_tokens, plan.send.send_tokens);
    call(at_.output_sources, plan.execute.output_sources);
    call(at_.return_outputs, plan.execute.return_outputs);
    call(at_.places, places);
    call(at_.weights, routing.weights);
  };
  for_each_list([&](std::int64_t& offset, const auto& list) {
    offset = at_.end;
    at_.end = round_up(at_.end + std::ssize(list) * 4, kListAlignment);
  });
  make_room(host_lists_, at_.end, work_.device);
  make_room(lists_, at_.end, work_.device);
  for_each_list([&](std::int64_t offset, const auto& list) {
    std::ranges::copy(std::as_bytes(std::span(list)), host_lists_.data() + offset);
  });
  work_.device.upload(lists_.address(), host_lists_.data(), at_.end);
}

void DeviceRoad::move(const Moved& rows, std::int64_t row_bytes) {
  if (ranks_ == nullptr) return;
  moves_.gather({.from = rows.from,
                 .to = sent_.address(),
                 .rows = list(rows.chosen),
                 .count = sum_of(rows.send_counts),
                 .row_bytes = row_bytes});
  ranks_->exchange({sent_.address(), rows.send_counts}, {rows.to, rows.recv_counts}, row_bytes);
}

ExpertGraphs::Batch DeviceRoad::batch_of(const Places& places, const OwnExperts& experts) {
  return {.inputs = places.num_sources,
          .topk = choices_of_each(experts.choices, places.num_sources),
          .results = GraphResults::rows,
          .has_rows = true};
}

void DeviceRoad::write_choices(const Places& places, const OwnExperts& experts) {
  const std::int64_t topk = choices_of_each(experts.choices, places.num_sources);
  DeviceGraphMemory& graphs = *work_.graphs;
  const DeviceGraphMemory::Inputs at =
      graphs.inputs_of(DeviceGraphMemory::budget_of(places.num_sources), topk);
  const auto count = narrow<std::int32_t>(places.num_sources);
  std::memcpy(graphs.host_inputs.data() + at.count, &count, sizeof(count));
  std::ranges::copy(std::as_bytes(experts.choices), graphs.host_inputs.data() + at.experts);
}

void DeviceRoad::start_experts(const ExchangePlan& plan, const Places& places,
                               const OwnExperts& experts) {
  if (experts.there == nullptr) return;
  if (places.is_graph) return experts.there->graphs().launch(batch_of(places, experts));
  experts.there->start_there({.x = places.own,
                              .num_inputs = places.num_sources,
                              .row_indices = list(at_.output_sources),
                              .num_rows = plan.execute.num_outputs(),
                              .y = places.results},
                             plan.execute.slot_begin);
}

void DeviceRoad::start(const Routing& routing, const ExchangePlan& plan,
                       const OwnExperts& experts) {
  work_.naming_place([&] {
    Device& device = work_.device;
    const std::int64_t row_bytes = hidden_ * kRowBytes;
    const std::int64_t result_bytes = hidden_ * kResultBytes;
    const std::int64_t outputs = plan.execute.num_outputs();
    const Places places = places_of(plan, experts);
    if (places.is_graph) {
      write_choices(places, experts);
      experts.there->graphs().prepare(batch_of(places, experts));
    } else if (experts.there != nullptr) {
      experts.there->make_room_there(outputs, places.num_sources);
    }
    upload_lists(routing, plan);
    device.upload(places.own, host_rows().data(), tokens_ * row_bytes);
    move({.from = places.own,
          .chosen = at_.send_tokens,
          .send_counts = plan.send.send_counts,
          .to = places.received,
          .recv_counts = places.received_counts},
         row_bytes);
    start_experts(plan, places, experts);
    move({.from = places.results,
          .chosen = at_.return_outputs,
          .send_counts = plan.execute.return_counts,
          .to = places.results + static_cast<CudaAddress>(outputs * result_bytes),
          .recv_counts = plan.send.return_counts},
         result_bytes);
    sum_results(routing, places.results);
    device.mark();
  });
}

/// The rows are there already.
void DeviceRoad::start(const Routing& routing, DeviceExperts& experts) {
  const DeviceGraphMemory::Inputs at =
      work_.graphs->inputs_of(DeviceGraphMemory::budget_of(routing.num_tokens), routing.topk);
  std::byte* const host = work_.graphs->host_inputs.data();
  const auto count = narrow<std::int32_t>(routing.num_tokens);
  std::memcpy(host + at.count, &count, sizeof(count));
  std::ranges::copy(std::as_bytes(std::span(routing.experts)), host + at.experts);
  std::ranges::copy(std::as_bytes(std::span(routing.weights)), host + at.weights);
  work_.naming_place([&] {
    experts.start_sums(routing.num_tokens, routing.topk);
    work_.device.mark();
  });
}

void DeviceRoad::sum_results(const Routing& routing, CudaAddress results) {
  moves_.combine({.results = results,
                  .places = list(at_.places),
                  .weights = list(at_.weights),
                  .y = sums_.address(),
                  .tokens = tokens_,
                  .topk = routing.topk,
                  .hidden = hidden_});
  work_.device.download(host_sums().data(), sums_.address(), tokens_ * hidden_ * kResultBytes);
}

void DeviceRoad::finish(MatrixView<float> y) {
  work_.naming_place([&] {
    if (ranks_ != nullptr) return ranks_->wait_for_mark();
    work_.device.wait_for_mark(work_.deadline_seconds, [&] { work_.ranks.progress(); });
  });
  const PinnedBuffer& host = plans(tokens_) ? work_.graphs->host_sums : host_sums();
  const auto* const sums = reinterpret_cast<const float*>(host.data());
  for (std::int64_t token = 0; token < tokens_; ++token) {
    std::copy_n(sums + token * hidden_, hidden_, y.row(token).data());
  }
}

}  // namespace moesaic
