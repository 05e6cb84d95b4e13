#include "src/lora/adapter_products.h"

#include <algorithm>
#include <tuple>

namespace moesaic {
namespace {

/// Of gradients that are held before they are added: they stay in the L2 cache.
constexpr std::int64_t kMaxResults = std::int64_t{1} << 18;
constexpr std::int64_t kRowsPerMaskTask = 4;

std::tuple<std::int64_t, std::int64_t, std::int64_t> form(const AdapterRows& rows) {
  return {rows.adapter->rank(), rows.adapter->first_row, rows.adapter->b.rows};
}

/// Rows of the groups times their adapter's scale and `gain`.
void scale_rows(std::span<const AdapterRows> groups, const MatrixView<float>& matrix, float gain) {
  for (const auto& [first, count, adapter] : groups) {
    const float scale = adapter->scale * gain;
    for (std::int64_t row = first; row < first + count; ++row) {
      for (float& value : matrix.row(row)) value *= scale;
    }
  }
}

/// Rows of the groups times their weights.
void weigh_rows(std::span<const AdapterRows> groups, const float* weights,
                const MatrixView<float>& matrix) {
  if (weights == nullptr) return;
  for (const AdapterRows& group : groups) {
    for (std::int64_t row = group.first_row; row < group.first_row + group.num_rows; ++row) {
      for (float& value : matrix.row(row)) value *= weights[row];
    }
  }
}

/// Inner rows times `matrix`; the product makes them itself if there is a `projection`.
LowRank terms(const Adapter& adapter, const MatrixView<float>& inner, const PackedMatrix& matrix,
              const PackedMatrix* projection) {
  LowRank terms{.inner = first_columns(inner, adapter.rank()), .matrix = matrix};
  if (projection != nullptr) {
    terms.projection = *projection;
    terms.scale = adapter.scale;
  }
  return terms;
}

}  // namespace

LowRank forward_terms(const Adapter& adapter, const MatrixView<float>& inner, bool projects) {
  return terms(adapter, inner, adapter.b, projects ? &adapter.a : nullptr);
}

LowRank backward_terms(const Adapter& adapter, const MatrixView<float>& back, bool projects) {
  return terms(adapter, back, adapter.a, projects ? &adapter.b : nullptr);
}

bool goes_along(const PackedMatrix& matrix, const Dropout& dropout) noexcept {
  return matrix.order == nullptr && !dropout.is_on();
}

AdapterProducts::AdapterProducts(const Compute& compute, GroupedGemm& gemm)
    : compute_(compute), gemm_(gemm), transposed_(compute), outer_(compute) {}

void AdapterProducts::for_each_alike(std::span<const AdapterRows> groups,
                                     const std::function<void(Alike)>& call) {
  sorted_.assign(groups.begin(), groups.end());
  std::ranges::stable_sort(sorted_, {}, form);
  for (auto first = sorted_.begin(); first != sorted_.end();) {
    const auto last = std::find_if(
        first, sorted_.end(), [&](const AdapterRows& rows) { return form(rows) != form(*first); });
    call({first, last});
    first = last;
  }
}

/// The groups of a product with one factor.
std::span<const GemmGroup> AdapterProducts::products(Alike groups, Factor factor,
                                                     MatrixView<const float> addend) {
  groups_.clear();
  for (const auto& [first, count, adapter] : groups) {
    groups_.push_back({.first_row = first,
                       .num_rows = count,
                       .weights = factor == Factor::a ? adapter->a : adapter->b,
                       .epilogue = {.addend = addend}});
  }
  return groups_;
}

/// call(row, mask) for all rows of the groups, over the threads.
template <typename Call>
void AdapterProducts::for_each_mask(Alike groups, const Dropout& dropout, const Call& call) {
  masked_.clear();
  for (const auto& [first, count, adapter] : groups) {
    for (std::int64_t row = first; row < first + count; ++row) masked_.emplace_back(row, adapter);
  }
  compute_.pool->for_each(std::ssize(masked_), kRowsPerMaskTask, [&](std::int64_t i) {
    const auto& [row, adapter] = masked_[static_cast<std::size_t>(i)];
    call(row,
         DropoutMask(dropout.share, dropout.keys[static_cast<std::size_t>(row)], adapter->key));
  });
}

/// x as the adapters of the groups read it: a copy without what is left out. Valid until the next
/// call.
RowSource AdapterProducts::left_of(const RowSource& x, Alike groups, const Dropout& dropout) {
  if (!dropout.is_on()) return x;
  const std::int64_t row_bytes = x.depth * element_bytes(x.element);
  left_.reserve(x.num_rows * row_bytes);
  const auto copy = [&]<typename T>(std::int64_t row, const DropoutMask& mask, T) {
    mask.copy(std::span(reinterpret_cast<const T*>(x.rows[row]), static_cast<std::size_t>(x.depth)),
              reinterpret_cast<T*>(left_.data() + row * row_bytes));
  };
  for_each_mask(groups, dropout, [&](std::int64_t row, const DropoutMask& mask) {
    if (x.element == RowSource::Element::bf16) return copy(row, mask, BFloat16{});
    copy(row, mask, 0.0F);
  });
  return left_rows_.packed(left_.data(), x.num_rows, x.depth, x.element);
}

void AdapterProducts::project(const RowSource& x, std::span<const AdapterRows> groups,
                              MatrixView<float> inner, const Dropout& dropout) {
  if (groups.empty()) return;  // forward passes without adapters allocate nothing
  for_each_alike(groups, [&](Alike alike) {
    const MatrixView<float> to = first_columns(inner, alike.front().adapter->rank());
    gemm_.run(left_of(x, alike, dropout), products(alike, Factor::a), output_of(to));
    scale_rows(alike, to, dropout.gain());
  });
}

void AdapterProducts::project_back(const RowSource& dy, std::span<const AdapterRows> groups,
                                   MatrixView<float> back, const Dropout& dropout) {
  for_each_alike(groups, [&](Alike alike) {
    const Adapter& adapter = *alike.front().adapter;
    const MatrixView<float> to = first_columns(back, adapter.rank());
    transposed_.run(columns_.columns_of(dy, adapter.first_row, adapter.b.rows),
                    products(alike, Factor::b), output_of(to));
    scale_rows(alike, to, dropout.gain());
  });
}

void AdapterProducts::pass_back(MatrixView<const float> back, std::span<const AdapterRows> groups,
                                MatrixView<float> dx, const Dropout& dropout) {
  for_each_alike(groups, [&](Alike alike) {
    const RowSource rows = back_rows_.of(first_columns(back, alike.front().adapter->rank()));
    if (!dropout.is_on()) {
      return transposed_.run(rows, products(alike, Factor::a, dx), output_of(dx));
    }
    passed_.reserve(dx.rows() * dx.cols());
    const MatrixView<float> passed = passed_.matrix(dx.rows(), dx.cols());
    transposed_.run(rows, products(alike, Factor::a), output_of(passed));
    for_each_mask(alike, dropout, [&](std::int64_t row, const DropoutMask& mask) {
      mask.add(passed.row(row), dx.row(row).data());
    });
  });
}

void AdapterProducts::add_gradients(const AdapterGradientInput& input,
                                    std::span<const AdapterRows> groups,
                                    AdapterGradients& gradients) {
  samples_ = input.samples;
  for_each_alike(groups, [&](Alike alike) {
    const Adapter& adapter = *alike.front().adapter;
    const Format format = adapter.a.layout.format;
    const MatrixView<float> inner = first_columns(input.inner, adapter.rank());
    const MatrixView<float> back = first_columns(input.back, adapter.rank());
    weigh_rows(alike, input.row_weights, inner);
    weigh_rows(alike, input.row_weights, back);
    add_b(input, alike, gradients);
    add_factor(
        {.y = back_rows_.of(back), .x = left_of(input.x, alike, input.dropout), .format = format},
        alike, Factor::a, gradients);
  });
}

/// Each part of a composite has columns of its own.
void AdapterProducts::add_b(const AdapterGradientInput& input, Alike groups,
                            AdapterGradients& gradients) {
  const Adapter& first_adapter = *groups.front().adapter;
  for_each_part(first_adapter, [&](const Adapter& part, std::int64_t first) {
    const AdapterRows rows{groups.front().first_row, groups.front().num_rows, &part};
    const OuterInput factor{.y = columns_.columns_of(input.dy, part.first_row, part.b.rows),
                            .x = inner_rows_.of(columns_of(input.inner, first, part.rank())),
                            .format = part.a.layout.format};
    add_factor(factor, first_adapter.parts.empty() ? groups : Alike(&rows, 1), Factor::b,
               gradients);
  });
}

/// Gradients of one factor of each group, sample by sample; as many at a time as stay in the cache.
void AdapterProducts::add_factor(const OuterInput& input, Alike groups, Factor factor,
                                 AdapterGradients& gradients) {
  parts_.clear();
  for (const auto& [first, count, adapter] : groups) {
    auto sample = std::ranges::lower_bound(samples_, first, {}, &SampleRange::first_row);
    for (; sample != samples_.end() && sample->first_row < first + count; ++sample) {
      if (sample->num_rows == 0) continue;
      parts_.push_back(
          {adapter, {.first_row = sample->first_row, .num_rows = sample->num_rows, .result = {}}});
    }
  }
  const std::int64_t size = input.y.depth * input.x.depth;
  const auto at_once = static_cast<std::size_t>(std::max<std::int64_t>(1, kMaxResults / size));
  results_.reserve(static_cast<std::int64_t>(std::min(at_once, parts_.size())) * size);
  for (std::size_t first = 0; first < parts_.size(); first += at_once) {
    const std::size_t last = std::min(first + at_once, parts_.size());
    outer_groups_.clear();
    for (std::size_t i = first; i < last; ++i) {
      float* const result = results_.data() + static_cast<std::int64_t>(i - first) * size;
      parts_[i].product.result = {result, input.y.depth, input.x.depth};
      outer_groups_.push_back(parts_[i].product);
    }
    outer_.run(input, outer_groups_);
    add_results(first, last, factor, gradients);
  }
}

/// Those of one adapter, of all its parts, are added by one thread.
void AdapterProducts::add_results(std::size_t first, std::size_t last, Factor factor,
                                  AdapterGradients& gradients) const {
  compute_.pool->parallel_for(static_cast<std::int64_t>(last - first), [&](std::int64_t task, int) {
    const std::size_t begin = first + static_cast<std::size_t>(task);
    const auto is_of_same = [&](std::size_t i) {
      return parts_[i].adapter->index == parts_[begin].adapter->index;
    };
    if (begin > first && is_of_same(begin - 1)) return;  // of an earlier task
    for (std::size_t i = begin; i < last && is_of_same(i); ++i) {
      const Adapter* const adapter = parts_[i].adapter;
      const MatrixView<float>& result = parts_[i].product.result;
      if (factor == Factor::b) {
        gradients.add(adapter->index, factor, result, adapter->first_b_row);
        continue;
      }
      for_each_part(*adapter, [&](const Adapter& part, std::int64_t row) {
        gradients.add(part.index, factor, result.row_range(row, part.rank()));
      });
    }
  });
}

}  // namespace moesaic
