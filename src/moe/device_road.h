#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "comm/nccl_ranks.h"
#include "kernels/cuda/row_moves.h"
#include "src/moe/device_experts.h"
#include "src/moe/dispatch_plan.h"
#include "src/moe/routing.h"

namespace moesaic {

/// How a batch goes through a layer if all its experts are on GPUs, one GPU a rank: its rows go up
/// once, from GPU to GPU, through the experts; results go back to the GPUs of their tokens, which
/// sum them up; the sums come down. The bits are those of the road through the host. One batch at a
/// time is under way, and goes through the memory that it would take there.
class DeviceRoad {
 public:
  /// `ranks`: null where one rank has all experts, on its GPU or its CPU. All must outlive this.
  DeviceRoad(DeviceExpertsWorkspace& work, NcclRanks* ranks);

  [[nodiscard]] bool connects_ranks() const noexcept { return ranks_ != nullptr; }
  /// Batches that have begun so far.
  [[nodiscard]] std::int64_t num_batches() const noexcept { return num_batches_; }

  /// Memory for the rows [tokens, hidden] bf16 of a batch, to be written before start().
  [[nodiscard]] std::byte* rows(std::int64_t tokens, std::int64_t hidden);
  /// This rank's.
  struct OwnExperts {
    DeviceExperts* there = nullptr;  // null: it has none
    /// [inputs, topk] what the batch chose, as InputChoices has it; none: the host plans for them.
    std::span<const std::int32_t> choices{};
  };
  /// Asks for all of it. Waits for no row, but with several ranks until NCCL has taken the order.
  /// With `choices` of no more rows than graphs take the experts are a graph.
  void start(const Routing& routing, const ExchangePlan& plan, const OwnExperts& experts);
  /// Whether a batch of so many tokens goes through graphs, with which the GPU plans it: one rank
  /// has all experts, and there are not more tokens than graphs take.
  [[nodiscard]] bool plans(std::int64_t tokens) const noexcept {
    return ranks_ == nullptr && work_.graphs != nullptr && tokens > 0 &&
           tokens <= DeviceGraphMemory::kMostInputs;
  }
  /// Of such a batch: asks for all of it.
  void start(const Routing& routing, DeviceExperts& experts);
  /// Overwrites `y` [tokens, hidden] with the sums once they are here.
  void finish(MatrixView<float> y);

 private:
  /// What the GPU needs to know of a batch: where each part lies in one upload, in bytes.
  struct Lists {
    std::int64_t send_tokens = 0;
    std::int64_t output_sources = 0;
    std::int64_t return_outputs = 0;
    std::int64_t places = 0;
    std::int64_t weights = 0;
    std::int64_t end = 0;
  };
  /// Rows of device memory that go to other ranks, and where theirs come.
  struct Moved {
    CudaAddress from = 0;     // [any rows]
    std::int64_t chosen = 0;  // which list says which of them, by peer
    std::span<const std::int64_t> send_counts{};
    CudaAddress to = 0;
    std::span<const std::int64_t> recv_counts{};
  };
  // Of the workspace's memory:
  PinnedBuffer& host_rows() { return work_.host_inputs; }   // [tokens, hidden] bf16
  PinnedBuffer& host_sums() { return work_.host_results; }  // [tokens, hidden] f32
  DeviceBuffer& sources() { return work_.inputs; }   // [sources, hidden] bf16: own, then received
  DeviceBuffer& results() { return work_.results; }  // [outputs + received, hidden] f32
  /// Where the rows of a batch are in the GPU's memory.
  struct Places {
    bool is_graph = false;
    std::int64_t num_sources = 0;
    CudaAddress own = 0;  // [tokens] this rank's
    CudaAddress received = 0;
    std::vector<std::int64_t> received_counts{};  // as NcclRanks::Rows has them
    CudaAddress results = 0;
  };
  [[nodiscard]] Places places_of(const ExchangePlan& plan, const OwnExperts& experts);
  void make_room_for(const ExchangePlan& plan, const Places& places);
  [[nodiscard]] static ExpertGraphs::Batch batch_of(const Places& places,
                                                    const OwnExperts& experts);
  void write_choices(const Places& places, const OwnExperts& experts);
  void start_experts(const ExchangePlan& plan, const Places& places, const OwnExperts& experts);
  void upload_lists(const Routing& routing, const ExchangePlan& plan);
  void move(const Moved& rows, std::int64_t row_bytes);
  void sum_results(const Routing& routing, CudaAddress results);
  [[nodiscard]] CudaAddress list(std::int64_t offset) const {
    return lists_.address() + static_cast<CudaAddress>(offset);
  }

  DeviceExpertsWorkspace& work_;
  NcclRanks* ranks_;
  DeviceRowMoves moves_;
  // Of the batch that is under way:
  std::int64_t tokens_ = 0;
  std::int64_t hidden_ = 0;
  Lists at_;
  PinnedBuffer host_lists_;  // as Lists says
  DeviceBuffer lists_;
  DeviceBuffer sent_;  // rows and later results for other ranks, by peer
  DeviceBuffer sums_;  // [tokens, hidden] f32
  std::int64_t num_batches_ = 0;
};

/// Rows of one rank in a pass on such a road.
struct RoadRows {
  int ranks = 1;
  std::int64_t tokens = 0;    // of this rank
  std::int64_t topk = 0;      // choices of each
  std::int64_t outputs = 0;   // of its experts
  std::int64_t received = 0;  // token rows from other ranks
};
/// Bytes of the GPU's memory for it.
[[nodiscard]] std::int64_t device_road_bytes(const RoadRows& rows, const DevicePassShape& expert);

}  // namespace moesaic
