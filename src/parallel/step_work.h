#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/rounding.h"
#include "kernels/cuda/mlp_products.h"
#include "src/parallel/expert_loads.h"
#include "src/parallel/expert_popularity.h"
#include "src/parallel/machine_rates.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

// What a forward pass does, told before it is run: the work of the rank that has most of it. No
// machine is in it: a fit can put rates of its own to it.

/// Weights that a row is multiplied with, of one format: a matrix, or those of a gated MLP.
struct CostWeights {
  Format format = Format::bf16;
  double weights = 0;  // numbers: outputs x inputs, summed over matrices
  double bytes = 0;    // packed
  double columns = 0;  // outputs, summed over matrices
  // Of a row:
  double packed = 0;   // numbers that become what kernels take
  double results = 0;  // numbers that come out
  double gated = 0;    // numbers that are gated between its matrices
};

struct CostLayer {
  std::vector<CostWeights> mixer{};   // projections of attention; empty: there is none
  std::vector<CostWeights> router{};  // of the experts
  std::vector<CostWeights> common{};  // the shared expert, or the MLP of a layer without experts
  std::vector<CostWeights> expert{};  // one routed expert; empty: the layer has none
  // Numbers of a row between the projections of attention:
  double heads = 0;    // queries, which go to attention and come back
  double rotated = 0;  // queries and keys
  double normed = 0;   // the same, if they have norms of their own
  double stored = 0;   // keys and values
};

/// Experts on GPUs, one GPU a rank.
struct CostGpus {
  std::vector<std::vector<bool>> experts{};  // [layers][experts] which
  DeviceKernels kernels = DeviceKernels::mma;
  Nvfp4Activations activations = Nvfp4Activations::bf16;
  bool has_graphs = false;
  /// A rank that has all experts of a layer on its GPU leaves the sums of results to it.
  bool may_sum = true;
};

/// A model as its weights are stored.
struct CostModel {
  std::int64_t hidden = 0;
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t head_dim = 128;  // of attention
  std::int64_t angles = 0;      // of a token's position, for all layers together
  std::int64_t vocabulary = 0;
  bool scales_logits = false;
  bool rounds_rows = true;  // experts take rows of bf16
  WireSizes wire{};
  std::vector<CostLayer> layers{};
  std::vector<CostWeights> head{};
  const ModelPlacement* placement = nullptr;  // of the ranks that are asked about; null: contiguous
  std::optional<CostGpus> gpus{};
};

/// One forward pass of every rank.
struct CostStep {
  double rows = 1;             // tokens of a rank, of the one that has most
  double logits_rows = 1;      // of them, whose logits are wanted
  double sampled_rows = 0;     // of these, after which a token is chosen
  double attention_flops = 0;  // of a rank, all layers, without projections
  double cache_bytes = 0;      // read by a rank, all layers
  /// Equal parts of the tokens, which the ranks that share the experts have in turn: the last ones
  /// have one less, or none, where they do not come out even. 0: every rank has as many tokens.
  std::int64_t texts = 0;

  /// Tokens of `sharers` ranks.
  [[nodiscard]] double all_rows(int sharers) const {
    if (texts == 0) return rows * sharers;
    const std::int64_t most = divide_up(texts, sharers);
    return rows * static_cast<double>(texts) / static_cast<double>(most);
  }
};

/// What ranks send each other for the experts of one layer, expected, for one token of a step.
struct ExpertTraffic {
  double rows = 0;              // to other ranks: once to each that has an expert of the token
  double results = 0;           // from them: one a choice
  double dispatch_bytes = 0;    // of the rows, with heads of messages
  double combine_bytes = 0;     // of the results
  double inter_node_bytes = 0;  // of both, between nodes
  double messages = 0;          // of a rank to other nodes, a layer and step
};

/// What the rank that has most to do does in a step.
struct StepWork {
  /// Products of `rows` rows with the same amount of weights, `times` of them.
  struct Product {
    Phase phase = Phase::experts;
    CostWeights with;
    double rows = 1;
    double times = 1;
    bool is_rounded = false;     // rows are bf16
    bool is_streamed = false;    // results are more than caches hold
    bool is_transposed = false;  // for the gradients of a product's inputs
  };
  /// The same work on as many `numbers`, `times` of it.
  struct Rows {
    Phase phase = Phase::attention;
    RowOp op = RowOp::norm;
    double numbers = 0;
    double times = 1;
  };
  /// What a GPU does for some layers with experts on it, of the rank whose GPU has most to do.
  struct GpuLayers {
    struct Kernels {
      std::string name;  // kernels_name()
      double flops = 0;
      double weight_bytes = 0;
    };
    std::vector<Kernels> kernels{};
    double bytes_up = 0;
    double bytes_down = 0;
    double calls = 0;  // of the driver: copies, kernels, graphs
    double waits = 0;  // of the host, for what it called for
    // What the CPU does meanwhile: so many of StepWork::products, for as many experts.
    std::size_t first_product = 0;
    std::size_t num_products = 0;
    double product_calls = 0;
    double groups = 0;
  };
  std::vector<Product> products{};
  std::vector<GpuLayers> gpus{};
  std::vector<Rows> rows{};
  double attention_flops = 0;
  double head_dim = 128;
  double cache_bytes = 0;
  double held_bytes = 0;  // of weights that the rank reads in some step
  // Of choosing experts:
  double scores = 0;
  double choices = 0;
  double planned = 0;                       // choices whose experts' ranks plan for them
  std::array<double, kNumPhases> jobs{};    // handed to the threads
  std::array<double, kNumPhases> calls{};   // for products
  std::array<double, kNumPhases> groups{};  // experts that such a call is for

  // Exchanges of all layers, of the rank or node that has most of them.
  double node_messages = 0;       // of a rank, to ranks of its node
  double link_messages = 0;       // of a rank, to other nodes, without pieces that follow one
  double node_bytes = 0;          // of a node, from one of its ranks to another
  double link_bytes = 0;          // of a node, to or from others
  bool hides_links = false;       // ranks compute while rows travel between nodes
  double rows_max_over_mean = 1;  // of the ranks' expert rows, mean over layers

  // Of fine-tuning alone.
  double adapter_flops = 0;   // of adapters' products, and of their factors' gradients
  double trained_values = 0;  // numbers that the optimizer steps
  double sum_bytes = 0;       // sent by a rank to sum gradients with others

  [[nodiscard]] double weight_bytes() const;  // read by all products of the CPU
  [[nodiscard]] double flops() const;         // of these
  [[nodiscard]] double row_bytes() const;     // read and written between products
};

/// Whether ranks compute while rows of such a pass travel between nodes. Not of a pass that is kept
/// for training, whose experts run when all rows are there.
[[nodiscard]] bool hides_links(const CostStep& step);

struct StepEstimate {
  StepWork work;
  ExpertTraffic traffic;
};
/// The work of a step and what travels, for experts that are as popular as `popularity` says.
/// Tokens are drawn with a fixed seed (StepChoices): equal arguments give equal numbers. Throws
/// Error{usage} for more ranks than experts, Error{file} where the popularity was recorded of
/// another model.
[[nodiscard]] StepEstimate estimate_step(const CostModel& model, const CostRanks& ranks,
                                         const CostStep& step, const ExpertPopularity& popularity);

/// The messages of some layers that stand for all.
struct StepMessages {
  std::vector<LayerMessages> layers;
  double each = 1;  // layers of the model that one of them stands for
};
/// Those of which estimate_step() counts the bytes.
[[nodiscard]] StepMessages estimate_messages(const CostModel& model, const CostRanks& ranks,
                                             const CostStep& step,
                                             const ExpertPopularity& popularity);

/// What a step of fine-tuning does besides passes forward; of a rank.
struct CostTraining {
  double passes = 1;          // forward, and as many back
  bool recomputes = false;    // layers run again before their backward pass
  double row_factors = 0;     // numbers of adapters' factors that a row meets, without experts'
  double choice_factors = 0;  // and that its choices of experts meet
  double values = 0;          // numbers that are trained
  double sum_bytes = 0;       // sent to add gradients up with other ranks
};
/// The work of such a step whose passes forward are `forward`, of `pass`. Back go a transposed
/// product for each product, five of attention's for its two, and rows and results once more.
[[nodiscard]] StepWork training_work(const StepWork& forward, const CostStep& pass,
                                     const CostTraining& training);

}  // namespace moesaic
