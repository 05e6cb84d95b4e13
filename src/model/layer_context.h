#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/buffer.h"
#include "kernels/grouped_gemm.h"
#include "src/model/finite_rows.h"
#include "src/model/linear.h"
#include "src/model/precision.h"
#include "src/moe/cpu_experts.h"
#include "src/moe/moe_layer.h"
#include "src/moe/moe_options.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

struct ModelConfig;

/// What a shared expert gives while routed ones are under way.
struct SharedOut {
  Buffer<float> out;    // [rows, hidden]
  Buffer<float> gates;  // [rows]
};

/// What the layers of one rank compute with, and the memory that they share: a layer may write to
/// all of it, and finds nothing there of the layer before.
struct LayerContext {
  struct Setup {
    Compute compute;
    Precision precision = Precision::bf16;
    std::int64_t hidden = 0;
    std::int64_t num_experts = 0;  // 0: no layer has any
    std::int64_t experts_per_token = 0;
    float epsilon = 0;              // of RMSNorm
    float residual_multiplier = 1;  // of what a layer adds to the residual stream
    MoeOptions moe{};
    std::optional<ModelPlacement> placement{};  // of experts; nothing: contiguous
    DeviceExpertsWorkspace* device = nullptr;   // as ExpertGroup

    /// For all layers of a model, whose experts are placed contiguously.
    [[nodiscard]] static Setup of(const ModelConfig& config, Precision precision,
                                  const Compute& compute, const ExpertGroup& experts);
  };

  /// `experts`: the ranks that share the experts; outlives this.
  LayerContext(const Setup& setup, Communicator& experts)
      : place(experts.place()),
        config(setup),
        compute(setup.compute),
        gemm(setup.compute),
        adapters(compute, gemm),
        mlps(compute, gemm, adapters),
        linear(gemm, adapters, mlps),
        nodes(setup.moe.combine == Combine::fast ? make_expert_nodes(experts) : nullptr),
        placement(setup.placement.value_or(ModelPlacement(
            ExpertPlacement(std::max<std::int64_t>(setup.num_experts, 1), experts.size())))),
        moe{workspace(experts), workspace(experts)},
        cpu_experts{mlps},
        finite_rows(*compute.vector) {}

  /// body(row) for all rows, over the threads.
  template <typename Body>
  void for_each_row(std::int64_t rows, Body&& body) const {
    compute.pool->for_each_row(rows, body);
  }

  /// to += from
  void add_rows(MatrixView<const float> from, MatrixView<float> to) const {
    for_each_row(to.rows(), [&](std::int64_t row) {
      compute.vector->add(from.row(row).data(), to.cols(), to.row(row).data());
    });
  }

  [[nodiscard]] MoeWorkspace workspace(Communicator& experts) {
    return {{experts, placement, gemm, adapters.transposed(), times, config.moe, nodes.get()},
            config.hidden * element_bytes(config.precision),
            config.experts_per_token};
  }

  /// The batch, and so this rank, is in layer `index` now, or in none (-1).
  void enter_layer(std::int64_t index, std::string_view phase, std::size_t half = 0) {
    moe[half].enter_layer(index);
    place = moe[half].label.at(phase);
  }

  RowLabel& place;  // where this rank is
  Setup config;
  Compute compute;
  GroupedGemm gemm;
  AdapterProducts adapters;
  MlpProducts mlps;
  Linear linear;
  std::unique_ptr<ExpertNodes> nodes;  // whose ranks add their results
  ModelPlacement placement;
  PhaseTimes times;
  // Of a batch, or of two half-batches in turn:
  std::array<MoeWorkspace, 2> moe;
  std::array<SharedOut, 2> shared;
  CpuExpertsWorkspace cpu_experts;
  FiniteRows finite_rows;

  Buffer<float> normed;           // [rows, hidden] input of a mixer or feed-forward part
  Buffer<float> layer_out;        // [rows, hidden] its result
  Buffer<float> residual_again;   // [rows, hidden] backward: of a layer that computes again
  Buffer<float> part_gradient;    // [rows, hidden] backward: what comes into a part
  Buffer<float> normed_gradient;  // [rows, hidden] and what goes out of it
  Buffer<float> projected;        // [rows, width of all that a mixer projects its input to]
  Buffer<float> mixed;            // [rows, width that a mixer's output projection takes]
};

}  // namespace moesaic
