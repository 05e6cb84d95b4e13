#include "src/model/mla_gradient.h"

#include <algorithm>

#include "base/rounding.h"

namespace moesaic {
namespace {

/// A matrix that has the rows of some heads, a head below the other.
HeadRows<float> by_head(const MatrixView<float>& matrix, std::int64_t rows) {
  return {matrix.data(), matrix.stride(), rows * matrix.stride()};
}
/// `width` columns of each head in a row.
HeadRows<float> by_row(const MatrixView<float>& matrix, std::int64_t width) {
  return {matrix.data(), matrix.stride(), width};
}

}  // namespace

void MlaStash::resize(std::int64_t rows) {
  rows_ = rows;
  all_.resize(rows * config_.kept_width());
}

MatrixView<float> MlaStash::inner() const {
  return {all_.data(), rows_, config_.query_rank};
}
MatrixView<float> MlaStash::queries() const {
  return {inner().data() + rows_ * config_.query_rank, rows_, config_.queries_width()};
}
MatrixView<float> MlaStash::latents() const {
  return {queries().data() + rows_ * config_.queries_width(), rows_, config_.key_dim()};
}
MatrixView<float> MlaStash::mixed() const {
  return {latents().data() + rows_ * config_.key_dim(), rows_,
          config_.num_heads * config_.value_dim};
}
HeadRows<float> MlaStash::attended() const {
  return {mixed().data() + rows_ * mixed().cols(), config_.num_heads * config_.latent,
          config_.latent};
}
HeadRows<float> MlaStash::log_sum_exps() const {
  return {attended().at(rows_, 0), config_.num_heads, 1};
}

std::int64_t MlaStash::bytes() const {
  return 4 * all_.size();
}

MlaGradient::MlaGradient(const MlaConfig& config, LayerContext& context,
                         const AttentionKernel& kernel, HeadProducts& products)
    : config_(config),
      context_(context),
      products_(products),
      inputs_(config, context),
      attention_(kernel, context) {}

void MlaGradient::run(const WeightSet& weights, const RotaryRows& angles, const MlaStash& stash,
                      const PartBackward& part) {
  if (part.x.rows() == 0) return;
  const Pass pass{weights, angles, stash, part};
  reserve(pass.rows());
  context_.linear.backward(weights[MlaWeight::kOut],
                           part.of_product(stash.mixed(), part.dy, mixed_gradients(pass.rows())));
  prepare(pass);
  const std::int64_t at_once = config_.heads_at_once(context_.compute.pool->size());
  for (std::int64_t head = 0; head < config_.num_heads; head += at_once) {
    pass_back_heads(
        pass,
        {.first = head, .count = std::min(at_once, config_.num_heads - head), .rows = pass.rows()});
  }
  pass_back_queries(pass);
  pass_back_latents(pass);
}

void MlaGradient::reserve(std::int64_t rows) {
  context_.mixed.reserve(rows * config_.mixed_width());
  keys_.reserve(rows * config_.key_dim());
  inner_.reserve(rows * config_.query_rank);
  inner_gradients_.reserve(rows * config_.query_rank);
  query_gradients_.reserve(rows * config_.queries_width());
  latent_gradients_.reserve(rows * config_.key_dim());
  input_gradients_.reserve(rows * config_.hidden);
  heads_.reserve(rows * config_.heads_at_once(context_.compute.pool->size()) *
                 config_.gradient_width());
}

MatrixView<float> MlaGradient::mixed_gradients(std::int64_t rows) const {
  return context_.mixed.matrix(rows, config_.num_heads * config_.value_dim);
}

void MlaGradient::prepare(const Pass& pass) {
  context_.for_each_row(pass.rows(), [&](std::int64_t row) {
    inputs_.make_key(pass.weights, pass.angles.row(row), pass.stash.latents().row(row),
                     keys_.data() + row * config_.key_dim());
    std::fill_n(latent_gradients_.data() + row * config_.key_dim(), config_.key_dim(), 0.0F);
    if (config_.query_rank == 0) return;
    inputs_.norm(pass.weights, MlaWeight::kQANorm, pass.stash.inner().row(row),
                 inner_.data() + row * config_.query_rank);
  });
}

MlaGradient::Heads MlaGradient::matrices_of(const HeadRange& heads) const {
  float* next = heads_.data();
  const auto matrix = [&](std::int64_t width) {
    const MatrixView<float> made(next, heads.all_rows(), width);
    next += heads.all_rows() * width;
    return made;
  };
  return {.queries = matrix(config_.key_dim()),
          .result_gradients = matrix(config_.latent),
          .query_gradients = matrix(config_.key_dim()),
          .key_gradients = matrix(config_.key_dim()),
          .value_gradients = matrix(config_.latent),
          .projected_gradients = matrix(config_.nope_dim)};
}

/// As they met the latents in the forward pass.
void MlaGradient::find_queries(const Pass& pass, const HeadRange& heads) {
  const MatrixView<float> met = matrices_of(heads).queries;
  const HeadRows<float> projected =
      by_row(pass.stash.queries(), config_.query_dim()).from(heads.first);
  products_.transposed(mla_keys(config_, pass.weights), heads, projected,
                       first_columns(met, config_.latent));
  context_.for_each_row(heads.rows, [&](std::int64_t row) {
    inputs_.rotate_queries(heads, row, pass.angles.row(row), projected, met);
  });
}

void MlaGradient::pass_back_heads(const Pass& pass, const HeadRange& heads) {
  const Heads at = matrices_of(heads);
  find_queries(pass, heads);
  products_.backward(mla_values(config_, pass.weights), heads,
                     {.x = pass.stash.attended().from(heads.first),
                      .y = by_row(mixed_gradients(heads.rows), config_.value_dim).from(heads.first),
                      .gradient = at.result_gradients,
                      .samples = pass.part.samples},
                     pass.part.adapters);
  attention_.run(pass.part.samples, heads.count, [&](const SampleRange& sample, std::int64_t i) {
    return args_of(pass, heads, sample, i);
  });
  products_.transposed_backward(
      mla_keys(config_, pass.weights), heads,
      {.x = by_head(at.query_gradients, heads.rows),
       .y = by_row(pass.stash.queries(), config_.query_dim()).from(heads.first),
       .gradient = at.projected_gradients,
       .samples = pass.part.samples},
      pass.part.adapters);
  context_.for_each_row(heads.rows, [&](std::int64_t row) { collect(pass, heads, row); });
}

AttentionGradientArgs MlaGradient::args_of(const Pass& pass, const HeadRange& heads,
                                           const SampleRange& sample, std::int64_t i) const {
  const Heads at = matrices_of(heads);
  const auto own = [&](const MatrixView<float>& matrix) {
    return AttentionGradientArgs::Rows<float>{matrix.row(i * heads.rows + sample.first_row).data(),
                                              matrix.stride()};
  };
  const auto in = [](const HeadRows<float>& rows, std::int64_t row, std::int64_t head) {
    return AttentionGradientArgs::Rows<const float>{rows.at(row, head), rows.row_stride};
  };
  const auto of_head = [&](const MatrixView<float>& matrix) {
    return in(by_head(matrix, heads.rows), sample.first_row, i);
  };
  const AttentionGradientArgs::Rows<const float> keys{
      keys_.data() + sample.first_row * config_.key_dim(), config_.key_dim()};
  return {.num_rows = sample.num_rows,
          .head_dim = config_.key_dim(),
          .value_dim = config_.latent,
          .scale = static_cast<float>(config_.scale),
          .queries = of_head(at.queries),
          .keys = keys,
          .values = keys,  // their first part
          .results = in(pass.stash.attended(), sample.first_row, heads.first + i),
          .result_gradients = of_head(at.result_gradients),
          .log_sum_exps = in(pass.stash.log_sum_exps(), sample.first_row, heads.first + i),
          .query_gradients = own(at.query_gradients),
          .key_gradients = own(at.key_gradients),
          .value_gradients = own(at.value_gradients)};
}

void MlaGradient::collect(const Pass& pass, const HeadRange& heads, std::int64_t row) const {
  const VectorKernels& vector = *context_.compute.vector;
  const Heads at = matrices_of(heads);
  float* const latent = latent_gradients_.data() + row * config_.key_dim();
  for (std::int64_t i = 0; i < heads.count; ++i) {
    const std::int64_t from = i * heads.rows + row;
    vector.add(at.key_gradients.row(from).data(), config_.key_dim(), latent);
    vector.add(at.value_gradients.row(from).data(), config_.latent, latent);
    float* const query = query_gradients_.data() + row * config_.queries_width() +
                         (heads.first + i) * config_.query_dim();
    float* const rotated = query + config_.nope_dim;
    std::ranges::copy(at.projected_gradients.row(from), query);
    std::copy_n(at.query_gradients.row(from).data() + config_.latent, config_.rope_dim, rotated);
    vector.rotate_back(pass.angles.row(row), rotated);
  }
}

/// To dx, which is overwritten.
void MlaGradient::pass_back_queries(const Pass& pass) {
  const std::int64_t rows = pass.rows();
  const std::int64_t rank = config_.query_rank;
  const auto product = [&](std::size_t which, MatrixView<const float> x, MatrixView<float> dy,
                           MatrixView<float> dx) {
    context_.linear.backward(pass.weights[which], pass.part.of_product(x, dy, dx));
  };
  const MatrixView<float> queries = query_gradients_.matrix(rows, config_.queries_width());
  if (rank == 0) return product(MlaWeight::kQ, pass.part.x, queries, pass.part.dx);
  const MatrixView<float> inner = inner_gradients_.matrix(rows, rank);
  product(MlaWeight::kQ, inner_.matrix(rows, rank), queries, inner);
  context_.for_each_row(rows, [&](std::int64_t row) {
    norm_gradient(pass.weights[MlaWeight::kQANorm], pass.stash.inner().row(row), inner.row(row));
  });
  product(MlaWeight::kQA, pass.part.x, inner, pass.part.dx);
}

void MlaGradient::norm_gradient(const Weight& weight, std::span<const float> x,
                                std::span<float> gradient) const {
  context_.compute.vector->rms_norm_gradient({.x = x.data(),
                                              .weight = weight.vector.data(),
                                              .epsilon = MlaConfig::kNormEpsilon,
                                              .n = std::ssize(x)},
                                             gradient.data(), gradient.data());
}

/// To dx, besides what queries gave.
void MlaGradient::pass_back_latents(const Pass& pass) {
  const std::int64_t rows = pass.rows();
  const auto latent = static_cast<std::size_t>(config_.latent);
  const MatrixView<float> latents = latent_gradients_.matrix(rows, config_.key_dim());
  const MatrixView<float> dx = input_gradients_.matrix(rows, config_.hidden);
  context_.for_each_row(rows, [&](std::int64_t row) {
    context_.compute.vector->rotate_back(pass.angles.row(row), latents.row(row).data() + latent);
    norm_gradient(pass.weights[MlaWeight::kKvANorm], pass.stash.latents().row(row).first(latent),
                  latents.row(row).first(latent));
  });
  context_.linear.backward(pass.weights[MlaWeight::kKvA],
                           pass.part.of_product(pass.part.x, latents, dx));
  context_.add_rows(dx, pass.part.dx);
}

}  // namespace moesaic
