// Batches that stay on GPUs from layer's begin to end, ranks that are threads: the bytes of the
// CPU, wherever experts and tokens are. GPUs and NCCL are those of software.

#include "src/moe/device_road.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <random>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "kernels/whole_product.h"
#include "src/moe/cpu_experts.h"
#include "src/moe/moe_layer.h"
#include "src/moe/split_experts.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/setting.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

constexpr std::int64_t kExperts = 5;
constexpr std::int64_t kHidden = 40;
constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kTopk = 3;

/// A matrix that is the same wherever it is made.
OwnedMatrix draw_matrix(Format format, std::int64_t rows, std::int64_t depth, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<float> values(static_cast<std::size_t>(rows * depth));
  std::ranges::generate(values, [&] { return normal(random); });
  return pack_matrix({.format = format}, values, rows, depth);
}

/// Rows of an input, some with results next to the smallest numbers, one with an infinity.
std::vector<float> draw_inputs(std::int64_t first, std::int64_t count) {
  std::vector<float> x;
  for (std::int64_t token = first; token < first + count; ++token) {
    std::mt19937 random(static_cast<unsigned>(100 + token));
    std::normal_distribution<float> normal(0, token % 4 == 3 ? 5e-19F : 1.0F);
    for (std::int64_t i = 0; i < kHidden; ++i) x.push_back(normal(random));
    if (token == 6) x.back() = INFINITY;
  }
  return x;
}

enum class Where { cpu, gpus };

/// Where experts are, and how long a rank waits for GPUs and NCCL.
struct RoadBed {
  Where where = Where::gpus;
  double deadline_seconds = 120;
  bool has_road = true;          // else rows go through the memory of hosts
  bool has_cpu_experts = false;  // every second one of a rank's
  bool has_graphs = false;
  DeviceKernels kernels = DeviceKernels::portable;
  std::atomic<std::int64_t>* graph_batches = nullptr;  // counts those that went through graphs
  std::atomic<std::int64_t>* road_batches = nullptr;   // and those that took the road
};

/// One rank's layer, on the CPU or on its GPU.
class RoadRank {
 public:
  RoadRank(Communicator& world, const RoadBed& bed)
      : world_(world),
        deadline_seconds_(bed.deadline_seconds),
        placement_(ExpertPlacement(kExperts, world.size())) {
    std::vector<AdaptedMlp> experts;
    for (const ExpertId expert : placement_.of_layer(0).experts_of(world.rank())) {
      const auto seed = 3 * static_cast<unsigned>(expert);
      experts.push_back({.weights = {.gate = expert_matrix(kWidth, kHidden, seed),
                                     .up = expert_matrix(kWidth, kHidden, seed + 1),
                                     .down = expert_matrix(kHidden, kWidth, seed + 2)}});
    }
    std::unique_ptr<Experts> own;
    if (bed.where == Where::cpu) {
      own = std::make_unique<CpuExperts>(experts, kElement, experts_work_);
    } else {
      own = put_on_gpu(experts, bed);
    }
    memory_.push_back(draw_matrix(Format::f32, kExperts, kHidden, 1000));
    layer_.emplace(Router(memory_.back().matrix, {.topk = kTopk}, compute_), std::move(own),
                   kElement, compute_);
    if (road_) layer_->take_road(*road_);
  }

  /// The layer's sums for tokens [first, first + count), all of whose choices are `choices` if
  /// there are any.
  std::vector<float> run(std::int64_t first, std::int64_t count,
                         const std::vector<std::int32_t>& choices) {
    MoeWorkspace work({world_, placement_, gemm_, adapters_.transposed(), times_}, 2 * kHidden,
                      kTopk);
    std::vector<float> y(static_cast<std::size_t>(count * kHidden), -1.0F);
    for (const std::int64_t pass_tokens :
         {count / 2, count, count}) {  // buffers are used again, and grow
      std::vector<ExpertId> given;
      for (std::int64_t token = 0; token < pass_tokens; ++token) {
        for (const std::int32_t choice : choices) given.push_back(ExpertId{choice});
      }
      work.choices = choices.empty() ? nullptr : &given;
      const std::vector<float> x = draw_inputs(first, pass_tokens);
      layer_->begin({x.data(), pass_tokens, kHidden}, work);
      layer_->end({y.data(), pass_tokens, kHidden}, work);
    }
    return y;
  }

  [[nodiscard]] std::int64_t graph_batches() const { return graphs_ ? graphs_->num_batches : 0; }
  [[nodiscard]] std::int64_t road_batches() const { return road_ ? road_->num_batches() : 0; }

 private:
  static constexpr auto kElement = RowSource::Element::bf16;

  PackedMatrix expert_matrix(std::int64_t rows, std::int64_t depth, unsigned seed) {
    memory_.push_back(draw_matrix(Format::bf16, rows, depth, seed));
    return memory_.back().matrix;
  }

  std::unique_ptr<Experts> put_on_gpu(const std::vector<AdaptedMlp>& all, const RoadBed& bed) {
    device_ = std::make_unique<Device>(fake_driver(), 0, device_images());
    SlotMask on_gpu;
    std::vector<AdaptedMlp> experts = all;
    for (AdaptedMlp& expert : experts) {
      on_gpu.push_back(!bed.has_cpu_experts || on_gpu.size() % 2 == 0);
      if (!on_gpu.back()) continue;
      for (PackedMatrix* const matrix :
           {&expert.weights.gate, &expert.weights.up, &expert.weights.down}) {
        panels_.push_back(device_->allocate(matrix->bytes()));
        device_->upload(panels_.back().address(), matrix->panels, matrix->bytes());
        matrix->panels = reinterpret_cast<const std::byte*>(panels_.back().address());
      }
    }
    work_.emplace(*device_, bed.kernels, world_, deadline_seconds_);
    if (bed.has_graphs) {
      graphs_.emplace(*device_, DeviceGraphShape{.expert = {.hidden = kHidden, .width = kWidth},
                                                 .topk = kTopk,
                                                 .experts = std::ranges::count(on_gpu, true)});
      work_->graphs = &*graphs_;
    }
    if (bed.has_road && world_.size() > 1) {
      std::string reason;
      nccl_.emplace(NcclRanks::Setup{.library = NcclLibrary::load(reason, MOESAIC_FAKE_NCCL),
                                     .ranks = world_,
                                     .device = *device_,
                                     .deadline_seconds = deadline_seconds_});
    }
    if (bed.has_road) road_.emplace(*work_, nccl_ ? &*nccl_ : nullptr);
    if (experts.empty()) return std::make_unique<CpuExperts>(experts, kElement, experts_work_);
    auto device = std::make_unique<DeviceExperts>(experts, on_gpu, *work_);
    if (!bed.has_cpu_experts) return device;
    on_gpu.flip();
    return std::make_unique<SplitExperts>(
        std::move(device), std::make_unique<CpuExperts>(all, kElement, experts_work_, on_gpu));
  }

  Communicator& world_;
  double deadline_seconds_;
  std::vector<OwnedMatrix> memory_;
  ThreadPool pool_{1};
  Compute compute_{.isa = Isa::scalar, .vector = &find_vector_kernels(Isa::scalar), .pool = &pool_};
  GroupedGemm gemm_{compute_};
  AdapterProducts adapters_{compute_, gemm_};
  MlpProducts mlps_{compute_, gemm_, adapters_};
  CpuExpertsWorkspace experts_work_{mlps_};
  ModelPlacement placement_;
  PhaseTimes times_;
  std::unique_ptr<Device> device_;
  std::vector<DeviceBuffer> panels_;
  std::optional<DeviceExpertsWorkspace> work_;
  std::optional<DeviceGraphMemory> graphs_;
  std::optional<DeviceRoad> road_;
  std::optional<NcclRanks> nccl_;
  std::optional<MoeLayer> layer_;
};

/// The layer's sums for `tokens` tokens, of which the last rank has most and the second none.
std::vector<float> run_layer(int ranks, const RoadBed& bed, std::int64_t tokens,
                             const std::vector<std::int32_t>& choices = {}) {
  const test::TemporaryDirectory directory;
  const Setting folder("MOESAIC_FAKE_NCCL_FOLDER", directory.path());
  std::vector<float> all(static_cast<std::size_t>(tokens * kHidden));
  run_thread_ranks(ranks, [&](Communicator& world) {
    const std::int64_t small = world.size() == 1 ? 0 : tokens / 4;
    const bool is_last = world.rank() == world.size() - 1;
    const std::int64_t first = world.rank() == 0 ? 0 : small;
    const std::int64_t count = is_last ? tokens - first : world.rank() == 0 ? small : 0;
    RoadRank rank(world, bed);
    std::ranges::copy(rank.run(first, count, choices), all.begin() + first * kHidden);
    if (bed.graph_batches != nullptr) *bed.graph_batches += rank.graph_batches();
    if (bed.road_batches != nullptr) *bed.road_batches += rank.road_batches();
  });
  return all;
}

TEST(DeviceRoad, gives_the_bytes_of_the_cpu_on_any_number_of_ranks) {
  const std::vector<float> wanted = run_layer(1, {Where::cpu}, 13);
  EXPECT_GT(std::ranges::count_if(wanted, [](float y) { return y != 0 && std::isfinite(y); }), 400);
  for (const int ranks : {1, 2, 3}) {
    EXPECT_EQ(different(run_layer(ranks, {}, 13), wanted), 0U) << ranks << " ranks";
  }
}

TEST(DeviceRoad, takes_all_tokens_to_the_experts_of_one_rank) {
  for (const std::vector<std::int32_t>& choices :
       {std::vector<std::int32_t>{0, 1, 2}, std::vector<std::int32_t>{2, 3, 4}}) {
    const std::vector<float> wanted = run_layer(1, {Where::cpu}, 9, choices);
    EXPECT_EQ(different(run_layer(2, {}, 9, choices), wanted), 0U);
  }
}

TEST(DeviceRoad, has_room_for_ranks_without_tokens_or_experts) {
  EXPECT_TRUE(run_layer(3, {}, 0).empty());
  const std::vector<float> wanted =
      run_layer(1, {Where::cpu}, 3);  // the first rank has none either
  EXPECT_EQ(different(run_layer(3, {}, 3), wanted), 0U);
}

/// Sums of the layer with graphs, of whose three passes on each rank so many went through them, on
/// all ranks together.
std::vector<float> run_with_graphs(int ranks, RoadBed bed, std::int64_t tokens,
                                   std::int64_t batches,
                                   const std::vector<std::int32_t>& choices = {}) {
  std::atomic<std::int64_t> count = 0;
  bed.has_graphs = true;
  bed.graph_batches = &count;
  std::vector<float> sums = run_layer(ranks, bed, tokens, choices);
  EXPECT_EQ(count, batches) << tokens << " tokens, " << ranks << " ranks";
  return sums;
}

TEST(DeviceRoad, through_graphs_gives_the_same_bytes) {
  for (const auto& [tokens, batches] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 2}, {2, 3}, {13, 3}, {64, 3}, {300, 1}}) {
    const std::vector<float> wanted = run_layer(1, {Where::cpu}, tokens);
    EXPECT_EQ(different(run_with_graphs(1, {}, tokens, batches), wanted), 0U) << tokens;
  }
  const std::vector<std::int32_t> hot = {0, 1, 2};
  EXPECT_EQ(different(run_with_graphs(1, {}, 9, 3, hot), run_layer(1, {Where::cpu}, 9, hot)), 0U);
}

/// Rows that NCCL moves, to experts that are graphs.
TEST(DeviceRoad, through_graphs_of_several_ranks_gives_the_same_bytes) {
  for (const std::int64_t tokens : {13, 120}) {
    const std::vector<float> wanted = run_layer(1, {Where::cpu}, tokens);
    EXPECT_EQ(different(run_with_graphs(2, {}, tokens, 6), wanted), 0U) << tokens;
    EXPECT_EQ(different(run_with_graphs(3, {}, tokens, 9), wanted), 0U) << tokens;
  }
  // The first rank has 150 tokens, or 75, the last 450, or 225, and each rows of the other.
  EXPECT_EQ(different(run_with_graphs(2, {}, 600, 0), run_layer(1, {Where::cpu}, 600)), 0U);
  // Experts 0 and 1 are the first rank's: all rows go there, and the last one's GPU has its own.
  EXPECT_EQ(
      different(run_with_graphs(2, {}, 9, 6, {0, 1, 2}), run_layer(1, {Where::cpu}, 9, {0, 1, 2})),
      0U);
  const RoadBed mma = {.kernels = DeviceKernels::mma};
  EXPECT_EQ(different(run_with_graphs(2, mma, 45, 6), run_layer(1, mma, 45)), 0U);
}

TEST(DeviceRoad, with_experts_of_the_cpu_goes_through_graphs_too) {
  const RoadBed hosts = {.has_road = false, .has_cpu_experts = true};
  for (const std::int64_t tokens : {13, 40}) {
    const std::vector<float> wanted = run_layer(1, {Where::cpu}, tokens);
    for (const int ranks : {1, 2, 3}) {
      EXPECT_EQ(different(run_with_graphs(ranks, hosts, tokens, 3 * ranks), wanted), 0U)
          << tokens << " tokens, " << ranks << " ranks";
    }
  }
  // Experts 0 and 1 are the first rank's: 0, and 2 and 4 of the second, are on GPUs.
  for (const auto& [choices, batches] :
       std::vector<std::pair<std::vector<std::int32_t>, std::int64_t>>{{{0, 1, 2}, 6},
                                                                       {{1, 3, 4}, 3}}) {
    EXPECT_EQ(different(run_with_graphs(2, hosts, 9, batches, choices),
                        run_layer(1, {Where::cpu}, 9, choices)),
              0U);
  }
}

TEST(DeviceRoad, is_taken_by_batches_whose_experts_are_all_on_the_gpu) {
  using Choices = std::vector<std::int32_t>;
  std::atomic<std::int64_t> count = 0;
  const RoadBed some = {.has_cpu_experts = true, .road_batches = &count};  // 0, 2 and 4 are there
  const auto check = [&](const RoadBed& bed, const Choices& choices, std::int64_t batches) {
    count = 0;
    EXPECT_EQ(different(run_layer(1, bed, 9, choices), run_layer(1, {Where::cpu}, 9, choices)), 0U);
    EXPECT_EQ(count, batches);
  };
  RoadBed by_graphs = some;
  by_graphs.has_graphs = true;
  for (const RoadBed& bed : {some, by_graphs}) {
    check(bed, {0, 2, 4}, 3);
    check(bed, {0, 1, 2}, 0);
    check(bed, {}, 0);  // tokens choose as they are: some an expert of the CPU
  }
  check({.road_batches = &count}, {}, 3);
}

TEST(DeviceRoad, through_graphs_has_the_bits_of_tensor_cores) {
  for (const std::int64_t tokens : {2, 45}) {
    for (const bool has_road : {true, false}) {
      const RoadBed bed = {
          .has_road = has_road, .has_cpu_experts = !has_road, .kernels = DeviceKernels::mma};
      EXPECT_EQ(different(run_with_graphs(1, bed, tokens, 3), run_layer(1, bed, tokens)), 0U);
    }
  }
}

/// The message of the first rank that fails.
std::string failure_of(const char* setting, double deadline_seconds) {
  const Setting fails(setting, "1");
  try {
    (void)run_layer(2, {.deadline_seconds = deadline_seconds}, 9);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::peer ? error.what() : "of another kind";
  }
  return "none";
}

TEST(DeviceRoad, ends_with_an_error_of_nccl) {
  EXPECT_NE(failure_of("MOESAIC_FAKE_NCCL_FAILS", 5)
                .find("experts: rank 1 of 2: NCCL 2.28.9: rows from GPU to GPU: remote process "
                      "exited or there was a network error (as the fake NCCL says)"),
            std::string::npos);
}

TEST(DeviceRoad, ends_at_the_deadline_of_a_rank_that_does_not_come) {
  EXPECT_NE(failure_of("MOESAIC_FAKE_NCCL_ABSENT", 0.2)
                .find("NCCL 2.28.9: ncclCommInitRankConfig has not ended within 0.2 s: is a rank "
                      "missing?"),
            std::string::npos);
  const std::string silent = failure_of("MOESAIC_FAKE_NCCL_SILENT", 3);
  EXPECT_NE(silent.find("experts: GPU 0 (PTX machine) has not finished "), std::string::npos)
      << silent;
  EXPECT_NE(silent.find("within 3 s"), std::string::npos) << silent;
}

}  // namespace
}  // namespace moesaic
