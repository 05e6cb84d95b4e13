#pragma once

#include <vector>

#include "kernels/delta_gradient.h"
#include "src/model/delta_inputs.h"

namespace moesaic {

/// What a gated delta net keeps of a forward pass besides its input.
class DeltaStash : public Stash {
 public:
  explicit DeltaStash(const DeltaConfig& config) : config_(config) {}

  /// Makes room; contents are lost.
  void resize(std::int64_t rows);
  /// [rows, projected_width]
  [[nodiscard]] MatrixView<float> projected() const;
  /// [rows, 2 value_heads], rates and steps as projected.
  [[nodiscard]] MatrixView<float> rates() const;
  /// [rows, value_width] before their norm.
  [[nodiscard]] MatrixView<float> results() const;

  [[nodiscard]] std::int64_t bytes() const override;

 private:
  const DeltaConfig& config_;
  std::int64_t rows_ = 0;
  Buffer<float> projected_;
  Buffer<float> rates_;
  Buffer<float> results_;
};

/// Passes gradients back through a gated delta net of whole samples. A worker takes a key head of a
/// sample, and its value heads one after the other: forward once more for the states between
/// chunks, then back chunk by chunk. Keeps its scratch memory between calls.
class DeltaGradient {
 public:
  /// All must outlive this.
  DeltaGradient(const DeltaConfig& config, LayerContext& context, DeltaInputs& inputs);

  /// Uses `projected` and `mixed` of the context, and what `inputs` keeps.
  void run(const WeightSet& weights, const DeltaStash& stash, const PartBackward& part);

  /// Floats of a worker's scratch for samples of up to so many rows.
  [[nodiscard]] static std::int64_t worker_floats(const DeltaConfig& config, std::int64_t rows);

 private:
  /// Where the parts of a worker's scratch begin, in floats, of a sample.
  struct Scratch {
    Scratch(const DeltaConfig& config, std::int64_t rows);

    std::int64_t states;           // [chunks + 1][head_state]: before each chunk, after the last
    std::int64_t state_gradient;   // [head_state]
    std::int64_t end_gradient;     // [head_state] the same after the chunk
    std::int64_t errors;           // [rows, value_dim]
    std::int64_t error_gradients;  // [kDeltaChunk, value_dim]
    std::int64_t results;          // [kDeltaChunk, value_dim] once more; nobody reads them
    std::int64_t before;           // [taps - 1, width of a head] zeros
    std::int64_t query_factors;    // [rows]
    std::int64_t key_factors;      // [rows]
    std::int64_t chunk;            // DeltaChunk::scratch
    std::int64_t end;
  };
  /// What belongs to the rows of one sample.
  struct Task {
    const WeightSet& weights;
    const DeltaStash& stash;
    SampleRange sample;
    Scratch at;
    float* memory;

    [[nodiscard]] float* scratch(std::int64_t offset) const { return memory + offset; }
  };
  [[nodiscard]] const VectorKernels& vector() const { return *context_.compute.vector; }

  /// From the gradient of the layer's results to those of the recurrence's results and of their
  /// gates.
  void pass_back_results(const WeightSet& weights, const DeltaStash& stash,
                         const PartBackward& part);
  void pass_back_key_head(const Task& task, std::int64_t key_head);
  void convolve(const Task& task, const DeltaHead& head, float* factors);
  /// States between chunks, and errors.
  void find_states(const Task& task, std::int64_t value_head);
  void pass_back_value_head(const Task& task, std::int64_t value_head);
  void pass_back_chunk(const Task& task, std::int64_t value_head, std::int64_t chunk);
  /// Of the state through some rows, with the gradients of their errors.
  void pass_back_state(const Task& task, std::int64_t value_head, const SampleRange& rows);
  /// Of queries and keys that are units.
  void pass_back_units(const Task& task, const DeltaHead& head, const float* factors);
  void pass_back_convolution(const Task& task, const DeltaHead& head);
  /// A row of rate_gradients_, from rates and logarithms of decays to what is projected.
  void pass_back_rates(const WeightSet& weights, const DeltaStash& stash, std::int64_t row);

  /// Gradients of a head's projected rows from `row` on.
  [[nodiscard]] DeltaRows<float> gradients_of(const DeltaHead& head, std::int64_t row) const;
  /// Of the results of a value head.
  [[nodiscard]] DeltaRows<const float> result_gradients(std::int64_t value_head,
                                                        std::int64_t row) const;

  const DeltaConfig& config_;
  LayerContext& context_;
  DeltaInputs& inputs_;
  Buffer<float> result_gradients_;  // [rows, value_width], then [rows, hidden] of rates and steps
  Buffer<float> rate_gradients_;    // [rows, 2 value_heads]
  std::vector<Buffer<float>> scratch_;  // one a worker
};

}  // namespace moesaic
