#include "tests/moe/small_layers.h"

#include <cmath>
#include <memory>

namespace moesaic::test {
namespace {

PackedMatrix pack(const Matrix& matrix, std::vector<OwnedMatrix>& memory) {
  std::vector<float> values;
  for (const auto& row : matrix) values.insert(values.end(), row.begin(), row.end());
  memory.push_back(
      pack_matrix({.format = Format::f32}, values, std::ssize(matrix), std::ssize(matrix.front())));
  return memory.back().matrix;
}

std::vector<double> times(const Matrix& matrix, const std::vector<double>& x) {
  std::vector<double> y;
  for (const auto& row : matrix) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
    y.push_back(sum);
  }
  return y;
}

/// Of the token's choices, heaviest first, those from `first` to before `last`: their weighted sum
/// is added to `y`.
void add_choices(const Model& model, std::size_t token, std::size_t first, std::size_t last,
                 std::vector<double>& y) {
  const std::vector<double> x(model.tokens[token].begin(), model.tokens[token].end());
  const std::vector<double> logits = times(model.router, x);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (std::size_t k = first; k < last; ++k) {
    const std::size_t e = order[k];
    std::vector<double> h = times(model.gate[e], x);
    const std::vector<double> u = times(model.up[e], x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
    const std::vector<double> part = times(model.down[e], h);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += std::exp(logits[e]) / sum * part[i];
  }
}

}  // namespace

std::vector<double> reference(std::span<const Model> layers, std::size_t l, std::size_t token,
                              std::size_t defer) {
  std::vector<double> y(static_cast<std::size_t>(layers[l].shape.hidden));
  const auto topk = static_cast<std::size_t>(layers[l].shape.topk);
  if (l > 0) add_choices(layers[l - 1], token, topk - defer, topk, y);
  add_choices(layers[l], token, 0, l + 1 < layers.size() ? topk - defer : topk, y);
  return y;
}

std::vector<double> reference(const Model& model, std::size_t token) {
  return reference({&model, 1}, 0, token, 0);
}

MoeLayer Rank::make_layer(const Model& model) {
  std::vector<AdaptedMlp> experts;
  for (const ExpertId expert : placement_.of_layer(0).experts_of(world_.rank())) {
    const auto e = static_cast<std::size_t>(expert);
    experts.push_back({.weights = {.gate = pack(model.gate[e], memory_),
                                   .up = pack(model.up[e], memory_),
                                   .down = pack(model.down[e], memory_)}});
  }
  constexpr auto kElement = RowSource::Element::f32;
  return {Router(pack(model.router, memory_), {.topk = model.shape.topk}, compute_),
          std::make_unique<CpuExperts>(experts, kElement, experts_work_), kElement, compute_};
}

}  // namespace moesaic::test
