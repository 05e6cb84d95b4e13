#include "launch/bench/product_measure.h"

#include <algorithm>
#include <array>

#include "kernels/grouped_gemm.h"
#include "kernels/streamed_results.h"
#include "launch/bench/sample_rows.h"
#include "launch/shapes/cold_weights.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/weight_layout.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostRows = 1024;
/// Kernels take rows in blocks of some: just behind a block is what they do not fill.
constexpr std::array<std::int64_t, 12> kRowCounts = {1,  2,  4,  8,   16,  17,
                                                     32, 33, 64, 128, 256, kMostRows};
constexpr std::array<std::int64_t, 4> kCachedRowCounts = {1, 4, 16, 64};
/// Experts' gate of Qwen3-30B-A3B.
constexpr MatrixShape kShape{.columns = 768, .depth = 2048};
/// More outputs for as many weights: its time tells what an output takes besides.
constexpr MatrixShape kShort{.columns = 2048, .depth = 512};
/// Of which caches hold some.
constexpr MatrixShape kSmall{.columns = 128, .depth = 1024};
/// Little but rows to be packed, and little but results.
constexpr MatrixShape kNarrow{.columns = 32, .depth = 2048};
constexpr MatrixShape kShallow{.columns = 2048, .depth = 128};
/// Rows of a matrix that is one of several in a call, as experts are.
constexpr std::int64_t kGroupRows = 256;
constexpr std::int64_t kCachedResultRows = 256;  // kShallow gives 2 MiB of results for them
constexpr double kLeastSeconds = 1e-15;          // of a number: rates are above 0

double numbers(const MatrixShape& shape) {
  return static_cast<double>(shape.columns * shape.depth);
}

}  // namespace

/// Products with matrices of one shape, which are used in turn.
class ProductMeasure::ProductRun {
 public:
  ProductRun(const Layout& layout, const MatrixShape& shape, std::span<std::byte> memory,
             const Compute& compute)
      : shape_(shape),
        weights_(layout, shape.depth),
        matrices_(weights_, shape.columns, memory, *compute.pool),
        gemm_(compute),
        out_(kMostRows * shape.columns) {}

  /// Rows of `input`, `per_matrix` of them with each matrix.
  void run(const RowSource& input, std::int64_t per_matrix) {
    groups_.clear();
    for (std::int64_t row = 0; row < input.num_rows; row += per_matrix) {
      groups_.push_back({.first_row = row,
                         .num_rows = std::min(per_matrix, input.num_rows - row),
                         .weights = matrices_.next()});
    }
    gemm_.run(
        input, groups_,
        {.data = reinterpret_cast<std::byte*>(out_.data()), .stride_bytes = shape_.columns * 4});
  }

 private:
  MatrixShape shape_;
  SampleWeights weights_;
  ColdMatrices matrices_;
  GroupedGemm gemm_;
  Buffer<float> out_;
  std::vector<GemmGroup> groups_;
};

namespace {

/// Gated MLPs of kShape, which are used in turn: some in a call, as a layer has experts.
class MlpRun {
 public:
  MlpRun(const Layout& layout, std::span<std::byte> memory, const Compute& compute)
      : inner_weights_(layout, kShape.depth),
        outer_weights_(layout, kShape.columns),
        inner_(inner_weights_, kShape.columns, memory.first(memory.size() / 3 / 64 * 2 * 64),
               *compute.pool),
        outer_(outer_weights_, kShape.depth, memory.subspan(memory.size() / 3 / 64 * 2 * 64),
               *compute.pool),
        rows_(layout.format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16,
              kMostRows, kShape.depth),
        gemm_(compute),
        out_(kMostRows * kShape.depth) {}

  /// Experts of a call with so many rows for each.
  [[nodiscard]] static std::int64_t experts(std::int64_t rows) {
    return std::clamp<std::int64_t>(kMostRows / rows, 1, kMostExperts);
  }
  void run(std::int64_t rows) {
    const std::int64_t count = experts(rows);
    groups_.clear();
    for (std::int64_t expert = 0; expert < count; ++expert) {
      const PackedMatrix& gate = inner_.next();
      const PackedMatrix& up = inner_.next();
      groups_.push_back(
          {.first_row = expert * rows, .num_rows = rows, .weights = {gate, up, outer_.next()}});
    }
    gemm_.run_mlp(
        rows_.source(count * rows), groups_, {},
        {.data = reinterpret_cast<std::byte*>(out_.data()), .stride_bytes = kShape.depth * 4});
  }

 private:
  static constexpr std::int64_t kMostExperts = 8;
  SampleWeights inner_weights_;
  SampleWeights outer_weights_;
  ColdMatrices inner_;
  ColdMatrices outer_;
  SampleRows rows_;
  GroupedGemm gemm_;
  Buffer<float> out_;
  std::vector<MlpGroup> groups_;
};

/// Seconds of a row of products of many rows.
struct RowSeconds {
  double whole = 0;     // with kShape
  double narrow = 0;    // with kNarrow
  double shallow = 0;   // with kShallow, whose results caches hold
  double streamed = 0;  // the same past the caches
};

/// What a row takes besides its weights. With a product's seconds of a row being
///   n k weight + k pack + n result
/// for all shapes, three shapes tell the three: each is found from the one where it is most of it,
/// again and again until the others are right.
struct RowParts {
  double weight = 0;
  double pack = 0;
  double result = 0;
  double streamed = 0;
};

RowParts solve(const RowSeconds& row) {
  constexpr int kSolveRounds = 30;
  RowParts parts;
  const auto without = [](double seconds, double others, double count) {
    return std::max(kLeastSeconds, (seconds - others) / count);
  };
  const auto n = [](const MatrixShape& shape) { return static_cast<double>(shape.columns); };
  const auto k = [](const MatrixShape& shape) { return static_cast<double>(shape.depth); };
  for (int round = 0; round < kSolveRounds; ++round) {
    parts.weight = std::max(
        1e-18, (row.whole - k(kShape) * parts.pack - n(kShape) * parts.result) / numbers(kShape));
    parts.pack = without(row.narrow, numbers(kNarrow) * parts.weight + n(kNarrow) * parts.result,
                         k(kNarrow));
    const double inputs = numbers(kShallow) * parts.weight + k(kShallow) * parts.pack;
    parts.result = without(row.shallow, inputs, n(kShallow));
    parts.streamed = without(row.streamed, inputs, n(kShallow));
  }
  return parts;
}

}  // namespace

ProductMeasure::ProductMeasure(const Runtime& runtime, const Together& together,
                               std::span<std::byte> memory, std::span<std::byte> cached)
    : runtime_(runtime), together_(together), memory_(memory), cached_(cached) {}

double ProductMeasure::on_node() const {
  return static_cast<double>(runtime_.grid().node().size());
}

const CallRates& ProductMeasure::measure_calls() {
  constexpr int kTimes = 100;
  constexpr std::int64_t kExperts = 9;
  constexpr std::int64_t kWidth = 64;
  const Compute compute = runtime_.compute();
  const SampleWeights weights({.format = Format::bf16}, kWidth);
  ColdMatrices matrices(weights, kWidth, cached_, *compute.pool);
  const SampleRows rows(RowSource::Element::bf16, kExperts, kWidth);
  const Buffer<float> out(kExperts * kWidth);
  const GemmOutput output{.data = reinterpret_cast<std::byte*>(out.data()),
                          .stride_bytes = kWidth * 4};
  GroupedGemm gemm(compute);
  const GemmGroup alone{.num_rows = 1, .weights = matrices.next()};
  calls_.product_seconds = together_.seconds(
      [&] {
        gemm.run(rows.source(1), {&alone, 1}, output);
      },
      kTimes);
  std::vector<MlpGroup> experts;
  for (std::int64_t row = 0; row < kExperts; ++row) {
    const PackedMatrix& matrix = matrices.next();
    experts.push_back({.first_row = row, .num_rows = 1, .weights = {matrix, matrix, matrix}});
  }
  const auto run = [&](std::size_t count) {
    return together_.seconds(
        [&] {
          gemm.run_mlp(rows.source(static_cast<std::int64_t>(count)),
                       std::span(experts).first(count), {}, output);
        },
        kTimes);
  };
  const double one = run(1);
  calls_.group_seconds =
      std::max(kLeastSeconds, (run(kExperts) - one) / static_cast<double>(kExperts - 1));
  return calls_;
}

/// Gates where a product has just left them, in a job of a slab of rows.
double ProductMeasure::measure_gates() {
  constexpr std::int64_t kNumbers = 128;  // of a row in a job
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kJobs = 4;  // of each thread
  const Compute compute = runtime_.compute();
  ThreadPool& pool = *compute.pool;
  const std::vector<float> values = normal_numbers(kRows * kNumbers, 1, 3);
  struct Slab {
    std::vector<float> gate;
    std::vector<float> up;
    std::vector<BFloat16> inner;
  };
  const Slab slab{.gate = values, .up = values, .inner = std::vector<BFloat16>(values.size())};
  std::vector<Slab> slabs(static_cast<std::size_t>(pool.size()), slab);
  const auto seconds = [&](bool gates) {
    return together_.seconds([&] {
      pool.parallel_for(kJobs * pool.size(), [&](std::int64_t, int worker) {
        Slab& own = slabs[static_cast<std::size_t>(worker)];
        std::ranges::copy(values, own.gate.begin());  // gates change them
        if (!gates) return;
        for (std::int64_t at = 0; at < kRows * kNumbers; at += kNumbers) {
          compute.vector->gate({}, own.up.data() + at, kNumbers, own.gate.data() + at);
          compute.vector->to_bf16(own.gate.data() + at, kNumbers, own.inner.data() + at);
        }
      });
    });
  };
  const auto all = static_cast<double>(kJobs * pool.size() * kRows * kNumbers);
  const double both = seconds(true);
  gate_seconds_ = std::max(both / 10, both - seconds(false)) / on_node() / all;
  return gate_seconds_;
}

double ProductMeasure::measure(const std::function<void()>& call, double besides) const {
  const double seconds = together_.seconds(call);
  return std::max(seconds / 10, seconds - besides) / on_node();
}

double ProductMeasure::row_seconds(const MatrixShape& shape, Format format,
                                   const Rows& rows) const {
  const SampleRows input(rows.element, rows.count, shape.depth);
  ProductRun product(*layout_from_name(format_name(format)), shape, cached_, runtime_.compute());
  const auto call = [&] { product.run(input.source(rows.count), rows.per_matrix); };
  return measure(call, calls_.product_seconds) / static_cast<double>(rows.count);
}

/// What a row takes besides its weights.
void ProductMeasure::measure_rows(Format format, ProductRun& whole, ProductCurve& curve) const {
  const bool is_f32 = format == Format::f32;
  const auto element = is_f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  const SampleRows input(element, kGroupRows, kShape.depth);
  const auto call = [&] { whole.run(input.source(kGroupRows), kGroupRows); };
  const RowSeconds row{
      .whole = measure(call, calls_.product_seconds) / static_cast<double>(kGroupRows),
      .narrow = row_seconds(kNarrow, format, {kMostRows, kGroupRows, element}),
      .shallow = row_seconds(kShallow, format, {kCachedResultRows, kCachedResultRows, element}),
      .streamed = row_seconds(kShallow, format, {kMostRows, kMostRows, element})};
  const RowParts parts = solve(row);
  curve.pack_bf16_seconds = parts.pack;
  curve.result_seconds = parts.result;
  curve.streamed_result_seconds = parts.streamed;
  curve.pack_f32_seconds = parts.pack;
  if (is_f32) return;
  const double plain =
      row_seconds(kNarrow, format, {kMostRows, kGroupRows, RowSource::Element::f32});
  const double more = (plain - row.narrow) / static_cast<double>(kNarrow.depth);
  curve.pack_f32_seconds = std::max(kLeastSeconds, parts.pack + more);
}

ProductCurve ProductMeasure::products(Format format) {
  const Layout layout = *layout_from_name(format_name(format));
  const Compute compute = runtime_.compute();
  const auto element = format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  ProductCurve curve{.rows = {}, .seconds_per_weight = {}};
  double short_seconds = 0;
  {
    const SampleRows one(element, 1, kShort.depth);
    ProductRun product(layout, kShort, memory_, compute);
    short_seconds = measure([&] { product.run(one.source(1), 1); }, calls_.product_seconds);
  }
  {
    const SampleRows one(element, 1, kShape.depth);
    ProductRun whole(layout, kShape, memory_, compute);
    const double seconds = measure([&] { whole.run(one.source(1), 1); }, calls_.product_seconds);
    const double share = numbers(kShort) / numbers(kShape);
    const double columns =
        static_cast<double>(kShort.columns) - share * static_cast<double>(kShape.columns);
    curve.column_seconds = std::max(kLeastSeconds, (short_seconds - share * seconds) / columns);
    measure_rows(format, whole, curve);
  }
  MlpRun experts(layout, memory_, compute);
  for (const std::int64_t rows : kRowCounts) {
    const std::int64_t count = MlpRun::experts(rows);
    const double all = measure([&] { experts.run(rows); }, besides(curve, rows, count));
    curve.rows.push_back(static_cast<double>(rows));
    curve.seconds_per_weight.push_back(all / (static_cast<double>(3 * count) * numbers(kShape)));
  }
  ProductRun small(layout, kSmall, cached_, compute);
  const SampleRows few(element, kCachedRowCounts.back(), kSmall.depth);
  for (const std::int64_t rows : kCachedRowCounts) {
    const auto r = static_cast<double>(rows);
    const double others =
        static_cast<double>(kSmall.columns) * (curve.column_seconds + r * curve.result_seconds) +
        r * static_cast<double>(kSmall.depth) * curve.pack_bf16_seconds;
    const double all = measure([&] { small.run(few.source(rows), rows); },
                               calls_.product_seconds + on_node() * others);
    curve.cached_seconds_per_weight.sizes.push_back(r);
    curve.cached_seconds_per_weight.values.push_back(all / numbers(kSmall));
  }
  return curve;
}

/// Of a call for `count` experts with as many rows each, but for their weights.
double ProductMeasure::besides(const ProductCurve& curve, std::int64_t rows,
                               std::int64_t count) const {
  const auto all_rows = static_cast<double>(rows * count);
  const auto width = static_cast<double>(kShape.columns);
  const auto hidden = static_cast<double>(kShape.depth);
  const bool is_streamed = 4 * all_rows * hidden >= static_cast<double>(kCachedBytes);
  const double result = is_streamed ? curve.streamed_result_seconds : curve.result_seconds;
  const double of_rows =
      (hidden + width) * curve.pack_bf16_seconds + hidden * result + width * gate_seconds_;
  const double of_columns =
      static_cast<double>(count) * (2 * width + hidden) * curve.column_seconds;
  return calls_.product_seconds + static_cast<double>(count) * calls_.group_seconds +
         on_node() * (of_columns + all_rows * of_rows);
}

}  // namespace moesaic
