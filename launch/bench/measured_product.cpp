#include "launch/bench/measured_product.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/outer_gemm.h"
#include "kernels/transposed_gemm.h"

namespace moesaic {
namespace {

GemmOutput float_output(const Buffer<float>& out, std::int64_t columns) {
  return {.data = reinterpret_cast<std::byte*>(out.data()), .stride_bytes = columns * 4};
}

/// y = x W^T, or x = y W.
template <typename Gemm>
class WeightProduct : public MeasuredProduct {
 public:
  WeightProduct(const ProductBed& bed, const Compute& compute, const SampleRows& rows,
                std::int64_t columns)
      : bed_(bed), gemm_(compute), rows_(&rows), columns_(columns) {}

  void prepare(std::int64_t num_rows) override {
    source_ = rows_->source(num_rows);
    out_.reserve(num_rows * columns_);
  }
  void run() override {
    const GemmGroup group{.num_rows = source_.num_rows, .weights = bed_.matrices->next()};
    gemm_.run(source_, {&group, 1}, float_output(out_, columns_));
  }
  [[nodiscard]] std::int64_t matrix_bytes() const override {
    return bed_.weights->bytes(bed_.shape.columns);
  }

 protected:
  [[nodiscard]] double result(std::int64_t row, std::int64_t column) const {
    return static_cast<double>(out_.data()[row * columns_ + column]);
  }

  ProductBed bed_;
  Gemm gemm_;
  const SampleRows* rows_;
  std::int64_t columns_;  // of the results
  RowSource source_;
  Buffer<float> out_;
};

class ForwardProductRun final : public WeightProduct<GroupedGemm> {
 public:
  ForwardProductRun(const ProductBed& bed, const Compute& compute)
      : WeightProduct(bed, compute, *bed.inputs, bed.shape.columns) {}

  [[nodiscard]] double error() const override {
    return product_error(*bed_.weights, *rows_, source_.num_rows, columns_,
                         [this](auto row, auto column) { return result(row, column); });
  }
};

class TransposedProductRun final : public WeightProduct<TransposedGemm> {
 public:
  TransposedProductRun(const ProductBed& bed, const Compute& compute)
      : WeightProduct(bed, compute, *bed.gradients, bed.shape.depth) {}

  [[nodiscard]] double error() const override {
    return sampled_error(
        source_.num_rows, columns_, [this](auto row) { return exact_row(row); },
        [this](auto row, auto column) { return result(row, column); });
  }

 private:
  [[nodiscard]] std::vector<double> exact_row(std::int64_t row) const {
    const std::vector<float> y = rows_->values(row);
    std::vector<double> sums(static_cast<std::size_t>(columns_));
    for (std::size_t n = 0; n < y.size(); ++n) {
      const auto repeated = static_cast<std::int64_t>(n) % SampleWeights::kRows;
      const float* const weights = bed_.weights->values().data() + repeated * columns_;
      for (std::size_t k = 0; k < sums.size(); ++k) {
        sums[k] += static_cast<double>(y[n]) * static_cast<double>(weights[k]);
      }
    }
    return sums;
  }
};

class OuterProductRun final : public MeasuredProduct {
 public:
  OuterProductRun(const ProductBed& bed, const Compute& compute)
      : bed_(bed),
        format_(bed.weights->layout().format),
        gemm_(compute),
        places_(static_cast<std::size_t>(
            std::max<std::int64_t>(1, std::ssize(bed.memory) / matrix_bytes()))) {
    require(matrix_bytes() <= std::ssize(bed.memory), ErrorKind::usage,
            "a result of {} does not fit into --footprint {}", format_bytes(matrix_bytes()),
            format_bytes(std::ssize(bed.memory)));
  }

  void prepare(std::int64_t num_rows) override { num_rows_ = num_rows; }
  void run() override {
    const OuterInput input{.y = bed_.gradients->source(num_rows_),
                           .x = bed_.inputs->source(num_rows_),
                           .format = format_};
    auto* const place = reinterpret_cast<float*>(
        bed_.memory.data() + static_cast<std::int64_t>(places_.next()) * matrix_bytes());
    result_ = {place, bed_.shape.columns, bed_.shape.depth};
    const OuterGroup group{.num_rows = num_rows_, .result = result_};
    gemm_.run(input, {&group, 1});
  }
  [[nodiscard]] double error() const override {
    return sampled_error(
        bed_.shape.columns, bed_.shape.depth, [this](auto row) { return exact_row(row); },
        [this](auto row, auto column) { return static_cast<double>(result_(row, column)); });
  }
  [[nodiscard]] std::int64_t matrix_bytes() const override {
    return bed_.shape.columns * bed_.shape.depth * 4;
  }

 private:
  [[nodiscard]] std::vector<double> exact_row(std::int64_t n) const {
    std::vector<double> sums(static_cast<std::size_t>(bed_.shape.depth));
    for (std::int64_t row = 0; row < num_rows_; ++row) {
      const auto y = static_cast<double>(bed_.gradients->values(row)[static_cast<std::size_t>(n)]);
      const std::vector<float> x = bed_.inputs->values(row);
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += y * static_cast<double>(x[k]);
    }
    return sums;
  }

  ProductBed bed_;
  Format format_;
  OuterGemm gemm_;
  Rotation places_;  // of results
  std::int64_t num_rows_ = 0;
  MatrixView<float> result_;
};

}  // namespace

std::unique_ptr<MeasuredProduct> make_product(ProductOp op, const ProductBed& bed,
                                              const Compute& compute) {
  if (op == ProductOp::transposed) return std::make_unique<TransposedProductRun>(bed, compute);
  if (op == ProductOp::outer) return std::make_unique<OuterProductRun>(bed, compute);
  return std::make_unique<ForwardProductRun>(bed, compute);
}

}  // namespace moesaic
