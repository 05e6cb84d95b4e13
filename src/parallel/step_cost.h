#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phase_times.h"
#include "src/parallel/expert_loads.h"
#include "src/parallel/expert_popularity.h"
#include "src/parallel/machine_rates.h"

namespace moesaic {

// What a forward pass takes, told before it is run: first the work of the rank that has most of it
// (StepWork; no machine in it, a fit can put rates of its own to it), then its time on a machine
// that was measured (StepCost). A step's time is the sum over layers of the slowest rank: ranks
// meet in every layer with experts.

/// Weights that a row is multiplied with, of one format.
struct CostWeights {
  Format format = Format::bf16;
  double weights = 0;  // numbers: outputs x inputs, summed over matrices
  double bytes = 0;    // packed
};

struct CostLayer {
  std::vector<CostWeights> mixer{};   // projections of attention; empty: there is none
  std::vector<CostWeights> router{};  // of the experts
  std::vector<CostWeights> common{};  // the shared expert, or the MLP of a layer without experts
  std::vector<CostWeights> expert{};  // one routed expert; empty: the layer has none
};

/// A model as its weights are stored.
struct CostModel {
  std::int64_t hidden = 0;
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  WireSizes wire{};
  std::vector<CostLayer> layers{};
  std::vector<CostWeights> head{};
  const ModelPlacement* placement = nullptr;  // of the ranks that are asked about; null: contiguous
};

/// One forward pass of every rank.
struct CostStep {
  double rows = 1;             // tokens of a rank
  double logits_rows = 1;      // of them, whose logits are wanted
  double attention_flops = 0;  // of a rank, all layers, without projections
  double cache_bytes = 0;      // read by a rank, all layers
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
    bool is_transposed = false;  // for the gradients of a product's inputs
  };
  std::vector<Product> products{};
  double attention_flops = 0;
  double cache_bytes = 0;
  std::array<double, kNumPhases> row_bytes{};  // moved between products: norms, gates, sums
  std::array<double, kNumPhases> jobs{};       // handed to the threads

  // Exchanges of all layers, of the rank or node that has most of them.
  double node_messages = 0;       // of a rank, to ranks of its node
  double link_messages = 0;       // of a rank, to other nodes
  double node_bytes = 0;          // of a node, from one of its ranks to another
  double link_bytes = 0;          // of a node, to or from others
  double rows_max_over_mean = 1;  // of the ranks' expert rows, mean over layers

  // Of fine-tuning alone.
  double adapter_flops = 0;   // of adapters' products, and of their factors' gradients
  double trained_values = 0;  // numbers that the optimizer steps
  double sum_bytes = 0;       // sent by a rank to sum gradients with others

  [[nodiscard]] double weight_bytes() const;  // read by all products
  [[nodiscard]] double flops() const;         // of all products
};

struct StepEstimate {
  StepWork work;
  ExpertTraffic traffic;
};
/// The work of a step and what travels, for experts that are as popular as `popularity` says. Draws
/// tokens with a fixed seed: equal arguments give equal numbers. Throws Error{usage} for more ranks
/// than experts, and where the popularity was recorded of another model.
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

/// A part of a step's time: `quantity` of `unit` at so many seconds each.
struct CostTerm {
  std::string name;                             // "experts.int8", "attention", "link.bytes"
  std::optional<Phase> phase = Phase::experts;  // none: of adapters and their optimizer
  double quantity = 0;
  std::string_view unit;  // "flop", "byte", "message", "row", ...
  double seconds = 0;     // of all of it
  std::string source;     // where the rate comes from
};

struct StepCost {
  std::vector<CostTerm> terms;

  [[nodiscard]] double seconds() const;
  [[nodiscard]] PhaseTimes phases() const;
  /// The name of the largest term.
  [[nodiscard]] const std::string& bound() const;
};

/// The time of that work. Throws Error{usage} for what the machine was not measured for: a format,
/// links that the ranks need.
[[nodiscard]] StepCost step_cost(const StepWork& work, const CostRanks& ranks,
                                 const MachineRates& machine);

}  // namespace moesaic
