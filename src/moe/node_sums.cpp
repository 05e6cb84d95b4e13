#include "src/moe/node_sums.h"

#include <algorithm>
#include <array>

namespace moesaic {

void NodeSums::plan(const ExecutePlan& plan, int rank) {
  const ExecutePlan::NodeParts& node = plan.node_parts;
  awaits_.assign(static_cast<std::size_t>(plan.num_outputs()), false);
  parts_.clear();
  std::int32_t row = 0;
  for (int peer = 0; peer < static_cast<int>(node.recv_counts.size()); ++peer) {
    const auto end =
        row + static_cast<std::int32_t>(node.recv_counts[static_cast<std::size_t>(peer)]);
    for (; row < end; ++row) {
      const std::int32_t output = node.recv_outputs[static_cast<std::size_t>(row)];
      if (!awaits_[static_cast<std::size_t>(output)]) parts_.push_back({output, rank, kOwn});
      awaits_[static_cast<std::size_t>(output)] = true;
      parts_.push_back({output, peer, row});
    }
  }
  std::ranges::sort(parts_);
  outputs_.clear();
  begin_.clear();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!outputs_.empty() && outputs_.back() == parts_[i].output) continue;
    outputs_.push_back(parts_[i].output);
    begin_.push_back(i);
  }
  begin_.push_back(parts_.size());
}

void NodeSums::start(Communicator& node, MatrixView<const float> outputs, const ExecutePlan& plan,
                     const RowLabel& label) {
  if (node.size() == 1) return;
  node.place() = label;
  pending_ = node.exchange_rows({.base = reinterpret_cast<const std::byte*>(outputs.data()),
                                 .row_bytes = outputs.cols() * std::int64_t{sizeof(float)},
                                 .stride_bytes = outputs.stride() * std::int64_t{sizeof(float)},
                                 .rows = plan.node_parts.send_outputs,
                                 .counts = plan.node_parts.send_counts,
                                 .later_rows = outputs.rows(),
                                 .label = label},
                                plan.node_parts.recv_counts);
}

void NodeSums::wait() {
  if (pending_) received_ = pending_.wait().rows;
}

void NodeSums::add(std::size_t i, std::span<float> own) const {
  constexpr std::size_t kBlock = 64;
  const auto parts = std::span(parts_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
  const auto numbers = [&](const Part& part) {
    if (part.row == kOwn) return static_cast<const float*>(own.data());
    return reinterpret_cast<const float*>(received_[static_cast<std::size_t>(part.row)]);
  };
  std::array<float, kBlock> sum;
  for (std::size_t first = 0; first < own.size(); first += kBlock) {
    const std::size_t count = std::min(kBlock, own.size() - first);
    std::copy_n(numbers(parts.front()) + first, count, sum.begin());
    for (const Part& part : parts.subspan(1)) {
      const float* const more = numbers(part) + first;
      for (std::size_t at = 0; at < count; ++at) sum[at] += more[at];
    }
    std::copy_n(sum.begin(), count, own.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

}  // namespace moesaic
