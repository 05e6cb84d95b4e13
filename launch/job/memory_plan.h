#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "launch/options/options.h"
#include "src/model/model_config.h"
#include "src/model/model_weights.h"
#include "src/moe/wire_form.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

struct RoadRows;

/// What takes memory on a node.
enum class MemoryItem : std::size_t {
  expert,      ///< packed experts
  dense,       ///< all other weights
  embedding,   ///< pages of its file with rows that are read, which the system can take back
  cache,       ///< keys and values, or states
  activation,  ///< of a forward pass, and what is kept of it for a backward pass
  exchange,    ///< rows of other ranks, and results from them
  adapter,
  optimizer,  ///< gradients and moments
  runtime,    ///< the program, its libraries, MPI, the tokenizer
  load        ///< what loading takes beyond what is used afterwards
};
inline constexpr std::size_t kNumMemoryItems = 10;
inline constexpr std::array<std::string_view, kNumMemoryItems> kMemoryItemNames = {
    "expert",   "dense",   "embedding", "cache",   "activation",
    "exchange", "adapter", "optimizer", "runtime", "load"};

/// Bytes of each.
struct MemoryItems {
  std::array<std::int64_t, kNumMemoryItems> bytes{};

  [[nodiscard]] std::int64_t& operator[](MemoryItem item) {
    return bytes[static_cast<std::size_t>(item)];
  }
  [[nodiscard]] std::int64_t operator[](MemoryItem item) const {
    return bytes[static_cast<std::size_t>(item)];
  }
  [[nodiscard]] std::int64_t total() const noexcept {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }
  /// The one with most bytes.
  [[nodiscard]] MemoryItem largest() const noexcept;
  MemoryItems& operator+=(const MemoryItems& other) noexcept;
};

/// What a verb is going to keep in memory besides the weights: of one rank.
struct Workload {
  std::int64_t sequences = 1;       // under way at a time
  std::int64_t capacity = 0;        // positions of the cache of each
  std::int64_t batch_tokens = 1;    // of one forward pass
  std::int64_t logits_rows = 1;     // of one forward pass
  std::int64_t least_capacity = 0;  // that will do where memory is short; 0: nothing less will
  std::int64_t texts_tokens = 0;    // different ones, of all that is read; 0: those of a pass
  // Of adapters and fine-tuning:
  std::int64_t adapter_bytes = 0;    // adapters, packed and not
  std::int64_t optimizer_bytes = 0;  // gradients, moments
  std::int64_t kept_bytes = 0;       // what a backward pass needs of the forward pass
  bool keeps_layers = false;         // all that layers computed is among it
};

/// Ranks among which tokens go to and fro.
struct RankSharing {
  int sharers = 1;              // ranks that hold one copy of the experts
  int nodes = 1;                // that these are on
  std::int64_t all_tokens = 1;  // of the sharers' forward passes together
  int threads = 1;              // of a rank
  // In the worst case that is expected:
  double max_over_mean = 1;      // of the sharer with most rows for its experts
  std::int64_t expert_rows = 0;  // of the most popular expert
};

/// Layers whose tokens choose experts.
struct ExpertLayers {
  std::int64_t experts = 0;
  std::int64_t topk = 0;
  std::int64_t layers = 1;
};
/// Sets what is expected of `sharing` where experts are so popular: the most of some layers.
void expect_rows(const ExpertLayers& layers, const ExpertPopularity& popularity,
                 RankSharing& sharing);

/// Rows that go through MLPs at a time.
struct MlpScratch {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  std::int64_t rows = 0;  // of one MLP, at most
  std::int64_t mlps = 1;
  int threads = 1;
  std::int64_t packed_bytes = 4;  // of a number of a row: f32 is the most that kernels pack to
};
/// What GroupedGemm::run_mlp keeps for them.
[[nodiscard]] std::int64_t mlp_scratch_bytes(const MlpScratch& rows);

/// Memory of a process of this program without a model, but for what it has once it computes.
struct RuntimeBytes {
  std::int64_t rank = 0;  // its own
  std::int64_t node = 0;  // of the libraries and segments that all ranks of a node share
};
/// This process's.
[[nodiscard]] RuntimeBytes runtime_bytes();

/// A model and how it is run: what the memory of a rank follows from.
struct MemoryModel {
  const ModelConfig& config;
  Precision precision = Precision::bf16;
  WireForm wire = WireForm::exact;
  std::int64_t deferred = 0;     // choices of a token that are pending besides a layer's own
  std::int64_t graph_bytes = 0;  // page-locked, of ranks with experts on a GPU
  bool tries_halves = false;     // between nodes passes run whole and as halves, by time
};

/// What one rank needs for itself, and what the ranks of a node need once.
struct RankMemory {
  MemoryItems own{};
  MemoryItems shared{};
  bool keeps_layers = false;  // as Workload has it
};
/// What a layer's experts take of a rank's tokens, which may choose experts of other ranks.
struct ExpertTokens {
  std::int64_t hidden = 0;
  std::int64_t topk = 0;
  std::int64_t tokens = 0;  // of the rank, in a pass
  Precision precision = Precision::bf16;
  WireForm wire = WireForm::exact;
};
/// Rows that the experts of the busiest rank get for them, one a choice.
[[nodiscard]] std::int64_t expert_outputs(const ExpertTokens& tokens, const RankSharing& sharing);
/// Messages between nodes, to and from this rank, of an exchange there and one back, and which rows
/// ranks of the node read where they lie.
[[nodiscard]] std::int64_t exchange_bytes(const ExpertTokens& tokens, const RankSharing& sharing);

/// Rows of the busiest rank in a pass.
[[nodiscard]] RoadRows road_rows(const ModelConfig& config, const Workload& work,
                                 const RankSharing& sharing);
[[nodiscard]] RankMemory plan_rank(const MemoryModel& model, const WeightBytes& weights,
                                   const Workload& work, const RankSharing& sharing);

/// Bytes that a node needs or has.
struct MemoryPlan {
  MemoryItems items{};                     // of all ranks of the node
  WeightBytes::ByFormat expert_formats{};  // of their packed experts, mapped ones too
  std::int64_t num_ranks = 0;
  bool keeps_layers = false;  // as Workload has it

  [[nodiscard]] std::int64_t total() const noexcept { return items.total(); }
};

/// Throws Error{resource} that says what is needed, the largest item, what there is and what would
/// help a job of `verb`, by its options, if `plan` does not fit into `limit`.
void require_memory(const MemoryPlan& plan, const MemoryLimit& limit, Verb verb);

/// The most positions up to `work.capacity` for whose cache so many bytes suffice.
[[nodiscard]] std::int64_t positions_in(const ModelConfig& config, Precision precision,
                                        const Workload& work, std::int64_t cache_bytes);

/// "experts 2.25 GiB in bf16, other weights 240 MiB, key-value cache 3.00 MiB, ...": all that there
/// are.
[[nodiscard]] std::string items_text(const MemoryPlan& plan);

/// The formats that there are, most bytes first.
[[nodiscard]] std::vector<Format> formats_in(const WeightBytes::ByFormat& bytes);

}  // namespace moesaic
