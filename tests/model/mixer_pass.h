#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu_features.h"
#include "src/lora/adapter_set.h"
#include "src/model/precision.h"
#include "src/model/token_mixer.h"
#include "tests/model/naive_adapter.h"
#include "tests/model/packed_weight.h"
#include "tests/support/slopes.h"

namespace moesaic {

/// Some samples through `Model`, a mixer by definition; the loss is the sum of y times dy.
template <typename Model>
struct MixerProblem {
  Model model;
  std::vector<std::int64_t> samples{};  // tokens of each
  Doubles x{}, dy{};                    // [rows, hidden]

  [[nodiscard]] std::int64_t rows() const {
    return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  }
  /// Of one sample.
  [[nodiscard]] MixerProblem sample(std::size_t index) const {
    const std::int64_t first = std::accumulate(
        samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), std::int64_t{0});
    const auto part = [&](const Doubles& all) {
      const double* const begin = all.data() + first * model.config.hidden;
      return Doubles(begin, begin + samples[index] * model.config.hidden);
    };
    return {model, {samples[index]}, part(x), part(dy)};
  }
  /// [rows, hidden], by definition.
  [[nodiscard]] Doubles results() const {
    Doubles all;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Doubles y = model.forward(sample(i).x);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
  /// By every `stride`-th element of `values`, which are part of this problem.
  [[nodiscard]] Doubles slopes(Doubles& values, std::size_t stride = 1) {
    const auto loss = [&] { return product(results().data(), dy.data(), std::ssize(dy)); };
    return moesaic::slopes(values, loss, stride);
  }
};

/// What a pass is to be like.
struct MixerRun {
  Precision precision = Precision::f32;
  Isa isa = Isa::scalar;
  int threads = 1;
};

struct MixerResult {
  Floats y, y_kept, dx;
  std::vector<std::int64_t> sums;  // of AdapterGradients
  std::int64_t kept_bytes = 0;
};

/// Weights and adapters as a layer has them.
class LayerBed {
 public:
  LayerBed(std::size_t weights, Precision precision) : precision_(precision), set_(weights) {}

  void keep_vector(std::size_t place, const Doubles& values);
  void keep_matrix(std::size_t place, const Doubles& values, std::int64_t depth);
  /// In float32 whatever the precision.
  void keep_f32_matrix(std::size_t place, const Doubles& values, std::int64_t depth);
  /// Once the matrices are there; those of one matrix stand together.
  void add_adapters(std::span<const NaiveAdapter> adapters);

  [[nodiscard]] const WeightSet& set() const { return set_; }
  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return adapters_->places(); }

 private:
  void pack(std::size_t place, const Doubles& values, std::int64_t depth, Precision precision);

  Precision precision_;
  WeightSet set_;
  std::vector<std::unique_ptr<Floats>> vectors_;
  std::vector<std::unique_ptr<PackedWeight>> packed_;
  std::optional<AdapterSet> adapters_;
};

/// A layer, and what goes through it.
struct MixerPass {
  std::shared_ptr<const MixerKind> kind;
  std::int64_t hidden = 0;
  const LayerBed& bed;
  std::span<const std::int64_t> samples;  // tokens of each
  Floats x, dy;                           // [rows, hidden]
};

/// Forwards, without and with what is kept, and back.
[[nodiscard]] MixerResult run_mixer(MixerPass pass, const MixerRun& run);
/// Of a problem's samples.
template <typename Model>
[[nodiscard]] MixerResult run_mixer(const MixerProblem<Model>& problem,
                                    std::shared_ptr<const MixerKind> kind, const LayerBed& bed,
                                    const MixerRun& run) {
  return run_mixer({.kind = std::move(kind),
                    .hidden = problem.model.config.hidden,
                    .bed = bed,
                    .samples = problem.samples,
                    .x = as_floats(problem.x),
                    .dy = as_floats(problem.dy)},
                   run);
}

}  // namespace moesaic
