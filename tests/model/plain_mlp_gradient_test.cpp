// The MLP of a layer without experts, forward and backward, against finite differences.

#include <gtest/gtest.h>

#include "comm/thread_communicator.h"
#include "src/model/feed_forward.h"
#include "tests/lora/naive_mlp.h"

namespace moesaic {
namespace {

constexpr std::int64_t kHidden = 20;
constexpr std::int64_t kWidth = 10;
constexpr std::int64_t kTokens = 30;
constexpr std::array<SampleRange, 3> kSamples = {{{0, 7}, {7, 1}, {8, 22}}};

struct Case {
  /// <dy, y> of a token.
  [[nodiscard]] double product(std::int64_t t) const {
    const auto y = mlp({x.row(t), x.row(t) + kHidden});
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy.row(t)[i] * y[i];
    return sum;
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::int64_t t = 0; t < kTokens; ++t) sum += product(t);
    return sum;
  }

  std::mt19937 random{23};
  naive::Mlp mlp = naive::random_mlp({kHidden, kWidth, 2}, random);
  naive::Matrix x = naive::random_matrix(kTokens, kHidden, 1, random);
  naive::Matrix dy = naive::random_matrix(kTokens, kHidden, 1, random);
};

TEST(PlainMlpGradient, equals_finite_differences) {
  Case layer;
  naive::Packed packed(Format::f32);
  std::vector<Adapter> adapters;
  adapters.reserve(3);
  const AdaptedMlp mlp = packed.pack(layer.mlp, adapters);
  const WeightSet weights = {{.matrix = mlp.weights.gate, .adapters = {mlp.gate, 1}},
                             {.matrix = mlp.weights.up, .adapters = {mlp.up, 1}},
                             {.matrix = mlp.weights.down, .adapters = {mlp.down, 1}}};
  AdapterGradients gradients(packed.places());
  std::vector<float> y(layer.x.values.size());
  std::vector<float> dx = y;
  const std::vector<float> x = layer.x.floats();
  const std::vector<float> dy = layer.dy.floats();
  run_thread_ranks(1, [&](Communicator& world) {
    ThreadPool pool(2);
    const Isa isa = supported_isas().back();
    LayerContext context(
        {.compute = {.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool},
         .precision = Precision::f32,
         .hidden = kHidden},
        world);
    const auto part = PlainMlpKind(kHidden, kWidth).make_layer(weights, context);
    const auto stash = part->make_stash();
    const MatrixView<const float> input(x.data(), kTokens, kHidden);
    part->forward({.x = input, .y = {y.data(), kTokens, kHidden}, .keep = stash.get()});
    EXPECT_GE(stash->bytes(), 4 * 2 * kWidth * kTokens);
    part->backward(*stash, {.x = input,
                            .dy = {dy.data(), kTokens, kHidden},
                            .dx = {dx.data(), kTokens, kHidden},
                            .samples = kSamples,
                            .adapters = gradients});
  });
  std::vector<double> expected;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t i = 0; i < kHidden; ++i) {
      expected.push_back(naive::derivative(layer.x.row(t)[i], [&] { return layer.product(t); }));
    }
  }
  EXPECT_LE(naive::distance(dx, expected), 3e-6);
  const auto loss = [&] { return layer.loss(); };
  EXPECT_LE(naive::distance(naive::values_of(gradients, packed.places()[2].b),
                            naive::gradient(layer.mlp.down.adapter->b, loss)),
            3e-6);
}

}  // namespace
}  // namespace moesaic
