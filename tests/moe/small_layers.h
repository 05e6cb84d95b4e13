#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/whole_product.h"
#include "src/moe/cpu_experts.h"
#include "src/moe/moe_layer.h"

namespace moesaic::test {

using Matrix = std::vector<std::vector<float>>;

struct Shape {
  std::int64_t experts = 7;
  std::int64_t hidden = 40;
  std::int64_t intermediate = 24;
  std::int64_t topk = 3;
};

/// Weights and tokens that every rank makes alike from one seed.
struct Model {
  explicit Model(const Shape& s, unsigned seed = 11) : shape(s) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.2F);
    const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
      Matrix m(static_cast<std::size_t>(rows), std::vector<float>(static_cast<std::size_t>(cols)));
      for (auto& row : m) std::ranges::generate(row, [&] { return normal(random); });
      return m;
    };
    router = matrix(s.experts, s.hidden);
    for (std::int64_t e = 0; e < s.experts; ++e) {
      gate.push_back(matrix(s.intermediate, s.hidden));
      up.push_back(matrix(s.intermediate, s.hidden));
      down.push_back(matrix(s.hidden, s.intermediate));
    }
    tokens = matrix(60, s.hidden);
  }

  Shape shape;
  Matrix router;
  std::vector<Matrix> gate, up, down;
  Matrix tokens;
};

/// Layer l of `layers` in double precision, where each but the last leaves `defer` choices to the
/// next.
[[nodiscard]] std::vector<double> reference(std::span<const Model> layers, std::size_t l,
                                            std::size_t token, std::size_t defer);
/// One layer.
[[nodiscard]] std::vector<double> reference(const Model& model, std::size_t token);

/// The tokens [first, first + count).
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One rank's layers and what they run in.
class Rank {
 public:
  Rank(const Model& model, Communicator& world, int threads) : Rank({&model, 1}, world, threads) {}
  Rank(std::span<const Model> layers, Communicator& world, int threads)
      : models_(layers),
        shape_(layers.front().shape),
        world_(world),
        pool_(threads),
        compute_{.isa = supported_isas().back(),
                 .vector = &find_vector_kernels(supported_isas().back()),
                 .pool = &pool_},
        gemm_(compute_),
        adapters_(compute_, gemm_),
        mlps_(compute_, gemm_, adapters_),
        experts_work_{mlps_},
        placement_(ExpertPlacement(shape_.experts, world.size())) {
    memory_.reserve(100);
    for (const Model& model : layers) layers_.push_back(make_layer(model));
    pool_.set_between_tasks([&world] { world.progress(); }, std::chrono::microseconds(0));
  }

  /// Collective with Combine::fast.
  [[nodiscard]] MoeWorkspace workspace(const MoeOptions& options = {}) {
    const bool adds_in_nodes = options.combine == Combine::fast && world_.has_messages();
    if (adds_in_nodes && nodes_ == nullptr) nodes_ = std::make_unique<ExpertNodes>(world_);
    return {{world_, placement_, gemm_, adapters_.transposed(), times_, options,
             adds_in_nodes ? nodes_.get() : nullptr},
            WireCodec::bytes(options.wire == WireForm::int8 ? options.wire : WireForm::exact,
                             shape_.hidden),
            shape_.topk};
  }
  [[nodiscard]] MoeLayer& layer(std::size_t l = 0) { return layers_[l]; }

  /// Tokens of layer l.
  [[nodiscard]] std::vector<float> inputs(Share share, std::size_t l = 0) const {
    std::vector<float> x;
    for (std::int64_t t = share.first; t < share.first + share.count; ++t) {
      const auto& row = models_[l].tokens[static_cast<std::size_t>(t)];
      x.insert(x.end(), row.begin(), row.end());
    }
    return x;
  }
  void begin(const std::vector<float>& x, MoeWorkspace& work, std::size_t l = 0) {
    layers_[l].begin({x.data(), std::ssize(x) / shape_.hidden, shape_.hidden}, work);
  }
  [[nodiscard]] std::vector<float> end(const std::vector<float>& x, MoeWorkspace& work,
                                       std::size_t l = 0) {
    std::vector<float> y(x.size(), -1.0F);
    layers_[l].end({y.data(), std::ssize(x) / shape_.hidden, shape_.hidden}, work);
    return y;
  }

 private:
  [[nodiscard]] MoeLayer make_layer(const Model& model);

  std::span<const Model> models_;
  Shape shape_;
  Communicator& world_;
  std::vector<OwnedMatrix> memory_;
  ThreadPool pool_;
  Compute compute_;
  GroupedGemm gemm_;
  AdapterProducts adapters_;
  MlpProducts mlps_;
  CpuExpertsWorkspace experts_work_;
  ModelPlacement placement_;
  std::unique_ptr<ExpertNodes> nodes_;
  PhaseTimes times_;
  std::vector<MoeLayer> layers_;
};

}  // namespace moesaic::test
