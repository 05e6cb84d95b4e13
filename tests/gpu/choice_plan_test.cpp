// Plans that a GPU makes for a batch: those that the host makes of the same choices, whatever rank
// and batch, wherever experts are.

#include "kernels/cuda/choice_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>

#include "base/error.h"
#include "kernels/cuda/mlp_products.h"
#include "src/moe/dispatch_plan.h"
#include "src/moe/experts.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/ptx_machine/device_memory.h"
#include "tests/gpu/ptx_machine/machine.h"

namespace moesaic {
namespace {

constexpr double kPlanSeconds = 60;
constexpr std::int32_t kPoison = 0x7a7a7a7a;

/// A rank, the choices of its tokens and of rows that it was sent, and which experts it has where.
struct Batch {
  ExpertPlacement placement;
  int rank = 0;
  std::int64_t topk = 1;
  std::int64_t num_tokens = 0;                 // of this rank
  std::vector<std::int64_t> received;          // [ranks] rows
  std::vector<std::vector<std::int32_t>> ids;  // [inputs] in the order of ranks, then of rows
  SlotMask on_gpu;

  [[nodiscard]] std::int64_t first_own() const {
    std::int64_t first = 0;
    for (int peer = 0; peer < rank; ++peer) first += received[static_cast<std::size_t>(peer)];
    return first;
  }
};

struct Planned {
  std::vector<std::int32_t> row_indices;
  std::vector<std::int32_t> places;
  std::vector<std::int32_t> first_rows;
  std::vector<cuda::MlpTile> tiles;
  bool operator==(const Planned&) const = default;
};

}  // namespace

namespace cuda {
bool operator==(const MlpTile& a, const MlpTile& b) {
  return a.mlp == b.mlp && a.first_row == b.first_row && a.num_rows == b.num_rows;
}
}  // namespace cuda

namespace {

ExecutePlan plan_of_host(const Batch& batch) {
  Routing own;
  own.num_tokens = batch.num_tokens;
  own.topk = batch.topk;
  std::vector<ExpertId> others;
  for (std::int64_t i = 0; i < std::ssize(batch.ids); ++i) {
    const bool is_own = i >= batch.first_own() && i < batch.first_own() + batch.num_tokens;
    for (const std::int32_t id : batch.ids[static_cast<std::size_t>(i)]) {
      if (is_own) own.experts.push_back(ExpertId{id});
      if (!is_own) others.push_back(ExpertId{id});
    }
  }
  own.weights.resize(own.experts.size());
  ExecutePlan plan;
  DispatchPlanner(batch.placement, batch.rank).plan_execution(own, {others, batch.received}, plan);
  return plan;
}

/// The input that a source of the host's plan is.
std::int64_t input_of(const Batch& batch, std::int64_t source) {
  if (source < batch.num_tokens) return batch.first_own() + source;
  const std::int64_t row = source - batch.num_tokens;
  return row < batch.first_own() ? row : row + batch.num_tokens;
}

PlanRoom room_of(const Batch& batch) {
  PlanRoom room{.inputs = 1, .topk = batch.topk, .mlps = std::ranges::count(batch.on_gpu, true)};
  while (room.inputs < std::ssize(batch.ids)) room.inputs *= 2;
  return room;
}

/// What of the host's plan is the GPU's, and its rows as tiles.
Planned wanted_plan(const Batch& batch, std::span<const int> sizes) {
  const ExecutePlan plan = plan_of_host(batch);
  const PlanRoom room = room_of(batch);
  const cuda::TileKinds kinds = tile_kinds(sizes, room);
  Planned wanted;
  wanted.places.assign(static_cast<std::size_t>(room.rows()), -1);
  std::vector<DeviceRows> groups;
  for (std::size_t slot = 0; slot < batch.on_gpu.size(); ++slot) {
    if (!batch.on_gpu[slot]) continue;
    const std::int64_t first = std::ssize(wanted.row_indices);
    wanted.first_rows.push_back(static_cast<std::int32_t>(first));
    for (auto output = static_cast<std::size_t>(plan.slot_begin[slot]);
         output < static_cast<std::size_t>(plan.slot_begin[slot + 1]); ++output) {
      const std::int64_t input = input_of(batch, plan.output_sources[output]);
      wanted.places[static_cast<std::size_t>(input * batch.topk + plan.output_words[output])] =
          static_cast<std::int32_t>(wanted.row_indices.size());
      wanted.row_indices.push_back(static_cast<std::int32_t>(input));
    }
    groups.push_back(
        {static_cast<std::int32_t>(groups.size()), first, std::ssize(wanted.row_indices) - first});
  }
  wanted.first_rows.push_back(static_cast<std::int32_t>(wanted.row_indices.size()));
  for (std::size_t kind = 0; kind < sizes.size(); ++kind) {
    std::vector<cuda::MlpTile> tiles = tiles_of_kind(sizes, kind, groups);
    EXPECT_LE(std::ssize(tiles), kinds.most[kind]) << "tiles of up to " << sizes[kind];
    tiles.resize(static_cast<std::size_t>(kinds.most[kind]));
    wanted.tiles.insert(wanted.tiles.end(), tiles.begin(), tiles.end());
  }
  return wanted;
}

/// Arrays in device memory, written from the host and read back.
class PlanMemory {
 public:
  explicit PlanMemory(Device& device) : device_(device) {}

  template <typename T>
  CudaAddress put(const std::vector<T>& values) {
    buffers_.push_back(device_.allocate(static_cast<std::int64_t>(values.size() * sizeof(T))));
    device_.upload(buffers_.back().address(), values.data(), buffers_.back().bytes());
    finish();
    return buffers_.back().address();
  }
  template <typename T>
  std::vector<T> get(CudaAddress from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device_.download(values.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
    finish();
    return values;
  }

 private:
  void finish() {
    device_.mark();
    device_.wait_for_mark(kPlanSeconds);
  }

  Device& device_;
  std::vector<DeviceBuffer> buffers_;
};

std::vector<std::int32_t> mlps_of_experts(const Batch& batch) {
  std::vector<std::int32_t> mlps(static_cast<std::size_t>(batch.placement.num_experts()), -1);
  const auto own = batch.placement.experts_of(batch.rank);
  std::int32_t next = 0;
  for (std::size_t slot = 0; slot < batch.on_gpu.size(); ++slot) {
    if (batch.on_gpu[slot]) mlps[static_cast<std::size_t>(own[slot])] = next++;
  }
  return mlps;
}

/// On a GPU of software; choices beyond the inputs are garbage.
Planned plan_of_gpu(const Batch& batch, std::span<const int> sizes,
                    std::span<const DeviceImage> images = device_images()) {
  Device device(fake_driver(), 0, images);
  PlanMemory memory(device);
  const PlanRoom room = room_of(batch);
  const cuda::TileKinds kinds = tile_kinds(sizes, room);
  std::vector<std::int32_t> experts;
  for (const auto& ids : batch.ids) experts.insert(experts.end(), ids.begin(), ids.end());
  experts.resize(static_cast<std::size_t>(room.rows()), 0);
  const auto poison = [&](std::int64_t count) {
    return memory.put(std::vector<std::int32_t>(static_cast<std::size_t>(count), kPoison));
  };
  const DeviceChoicePlan::Request request = {
      .num_inputs = memory.put(std::vector{static_cast<std::int32_t>(batch.ids.size())}),
      .experts = memory.put(experts),
      .mlps_of_experts = memory.put(mlps_of_experts(batch)),
      .num_experts = batch.placement.num_experts(),
      .row_indices = poison(room.rows()),
      .places = poison(room.rows()),
      .first_rows = poison(room.mlps + 1),
      .tiles = poison(3 * num_tiles(kinds)),
      .room = room,
      .kinds = kinds};
  DeviceChoicePlan(device).make(request);
  Planned planned = {.row_indices = memory.get<std::int32_t>(request.row_indices, room.rows()),
                     .places = memory.get<std::int32_t>(request.places, room.rows()),
                     .first_rows = memory.get<std::int32_t>(request.first_rows, room.mlps + 1),
                     .tiles = memory.get<cuda::MlpTile>(request.tiles, num_tiles(kinds))};
  while (!planned.row_indices.empty() && planned.row_indices.back() == kPoison) {
    planned.row_indices.pop_back();  // nobody wrote there
  }
  return planned;
}

/// For tiles of portable kernels, and those of tensor cores.
void expect_plan_of_host(const Batch& batch) {
  for (const std::vector<int>& sizes : {std::vector<int>{8}, std::vector<int>{8, 32, 128}}) {
    const Planned wanted = wanted_plan(batch, sizes);
    const Planned planned = plan_of_gpu(batch, sizes);
    EXPECT_EQ(planned.first_rows, wanted.first_rows);
    EXPECT_EQ(planned.row_indices, wanted.row_indices);
    EXPECT_EQ(planned.places, wanted.places);
    EXPECT_TRUE(planned.tiles == wanted.tiles) << sizes.size() << " kinds of tiles";
  }
}

/// Rank `rank` of `ranks`; `per_rank` inputs of each, its own tokens among them, choose at random.
Batch random_batch(std::int64_t experts, std::int64_t topk, int ranks, int rank,
                   std::int64_t per_rank, std::mt19937& random) {
  Batch batch{.placement = ExpertPlacement::round_robin(experts, ranks),
              .rank = rank,
              .topk = topk,
              .num_tokens = per_rank,
              .received = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), per_rank),
              .ids = {},
              .on_gpu = {}};
  batch.received[static_cast<std::size_t>(rank)] = 0;
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  for (std::int64_t input = 0; input < per_rank * ranks; ++input) {
    std::ranges::shuffle(all, random);
    batch.ids.emplace_back(all.begin(), all.begin() + topk);
    std::ranges::sort(batch.ids.back());
  }
  batch.on_gpu.assign(static_cast<std::size_t>(batch.placement.num_local_experts(rank)), true);
  return batch;
}

TEST(ChoicePlan, of_any_batch_and_rank_is_that_of_the_host) {
  std::mt19937 random(5);
  for (const std::int64_t inputs : {1, 2, 5, 31, 32, 33, 64, 200, 256}) {
    SCOPED_TRACE(inputs);
    expect_plan_of_host(random_batch(16, 4, 1, 0, inputs, random));
  }
  for (const int rank : {0, 1, 2}) {
    SCOPED_TRACE(rank);
    expect_plan_of_host(random_batch(67, 6, 3, rank, 21, random));
  }
  expect_plan_of_host(random_batch(512, 10, 1, 0, 40, random));
  expect_plan_of_host(random_batch(4, 1, 2, 1, 0, random));  // no inputs
}

TEST(ChoicePlan, leaves_out_experts_of_the_cpu) {
  std::mt19937 random(6);
  Batch batch = random_batch(40, 8, 2, 1, 33, random);
  for (std::size_t slot = 0; slot < batch.on_gpu.size(); ++slot) batch.on_gpu[slot] = slot % 3 == 1;
  expect_plan_of_host(batch);
}

/// Experts 0 to 7 of rank 0 get so many rows; what else inputs choose belongs to rank 1.
Batch batch_with_rows(const std::vector<std::int64_t>& rows) {
  Batch batch{.placement = ExpertPlacement(16, 2),
              .rank = 0,
              .topk = 8,
              .num_tokens = std::ranges::max(rows),
              .received = {0, 0},
              .ids = {},
              .on_gpu = SlotMask(8, true)};
  for (std::int64_t token = 0; token < batch.num_tokens; ++token) {
    std::vector<std::int32_t>& ids = batch.ids.emplace_back();
    for (std::int32_t expert = 0; expert < 8; ++expert) {
      if (token < rows[static_cast<std::size_t>(expert)]) ids.push_back(expert);
    }
    for (std::int32_t expert = 8; ids.size() < 8; ++expert) ids.push_back(expert);
  }
  return batch;
}

TEST(ChoicePlan, cuts_any_number_of_rows_as_the_host_does) {
  expect_plan_of_host(batch_with_rows({0, 1, 7, 8, 9, 17, 33, 129}));
  expect_plan_of_host(batch_with_rows({256, 128, 127, 40, 161, 160, 32, 31}));
  expect_plan_of_host(batch_with_rows({0, 0, 0, 256, 0, 0, 0, 0}));  // one for all
  expect_plan_of_host(batch_with_rows({256, 256, 256, 256, 256, 256, 256, 256}));
}

/// Kernels of experts leave a tile without rows at once: they read no more than it.
TEST(ChoicePlan, has_tiles_without_rows_that_cost_nothing) {
  int num_kernels = 0;
  for (const DeviceImage& image : device_images()) {
    const bool is_scaled = image.module.starts_with("block_scaled/");
    const bool is_mma = is_scaled || image.module.starts_with("mma/");
    if (!image.is_ptx || (!is_mma && !image.module.starts_with("portable/"))) continue;
    const ptx::Machine machine(image.bytes);
    for (const std::string name : {"gate_up", "down"}) {
      for (const std::string suffix : {"", "_8", "_32", "_128"}) {
        if (!machine.has(name + suffix)) continue;
        ptx::DeviceMemory memory;
        const cuda::MlpTile none = {0, 0, 0};
        cuda::MlpArguments arguments{};
        const std::uint64_t at = memory.allocate(sizeof(none));
        memory.write(at, &none, sizeof(none));
        arguments.tiles = reinterpret_cast<const cuda::MlpTile*>(at);
        arguments.hidden = 64;
        arguments.width = 64;
        EXPECT_NO_THROW(
            machine.run(name + suffix, {.threads = machine.kernel(name + suffix).max_threads},
                        std::as_bytes(std::span(&arguments, 1)), {memory, is_scaled ? 120 : 90}))
            << image.module << " " << name << suffix;
        ++num_kernels;
      }
    }
  }
  EXPECT_GE(num_kernels, 5 * 2 + 5 * 6);  // five formats
}

/// Whether a change of the kernel's PTX, wherever it has `from`, is noticed.
bool is_noticed_in_plan(const Batch& batch, std::string_view from, std::string_view to) {
  std::vector<DeviceImage> images(device_images().begin(), device_images().end());
  const auto plan = std::ranges::find_if(
      images, [](const DeviceImage& image) { return image.module == "rows/plan" && image.is_ptx; });
  std::string text = plan->bytes;
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not there";
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  plan->bytes = text.c_str();
  const std::vector<int> sizes = {8, 32, 128};
  try {
    return !(plan_of_gpu(batch, sizes, images) == wanted_plan(batch, sizes));
  } catch (const Error&) {
    return true;
  }
}

TEST(ChoicePlan, is_watched_for_planted_mistakes) {
  const Batch batch = batch_with_rows({0, 1, 7, 8, 9, 17, 33, 129});
  EXPECT_FALSE(is_noticed_in_plan(batch, "popc.b32", "popc.b32"));
  for (const auto& [from, to] :
       std::vector<std::pair<std::string_view, std::string_view>>{{"bar.sync \t0;", ""},
                                                                  {"popc.b32", "clz.b32"},
                                                                  {"shfl.sync.up", "shfl.sync.idx"},
                                                                  {"shfl.sync.idx", "shfl.sync.up"},
                                                                  {"setp.ge.s32", "setp.gt.s32"},
                                                                  {"setp.lt.s32", "setp.le.s32"},
                                                                  {"setp.gt.s32", "setp.ge.s32"},
                                                                  {"or.b32", "and.b32"},
                                                                  {"not.b32", "mov.b32"},
                                                                  {"sub.s32", "add.s32"},
                                                                  {"clz.b32", "popc.b32"},
                                                                  {"shr.s32", "shl.b32"},
                                                                  {"max.s32", "min.s32"}}) {
    EXPECT_TRUE(is_noticed_in_plan(batch, from, to)) << from << " -> " << to;
  }
}

TEST(ChoicePlan, has_limits_that_it_names) {
  Device device(fake_driver(), 0, device_images());
  DeviceChoicePlan plan(device);
  try {
    plan.make({.room = {.inputs = 8, .topk = 2, .mlps = 513}});
    ADD_FAILURE() << "513 experts were taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a GPU plans for up to 256 inputs and 512 experts of a layer, not for 8 and 513");
  }
}

}  // namespace
}  // namespace moesaic
