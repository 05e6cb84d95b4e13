#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/whole_product.h"

namespace moesaic {

/// Random MLPs and rows for them, and what has to come out.
struct DeviceCase {
  struct Shape {
    Layout layout{};
    std::int64_t hidden = 0;
    std::int64_t width = 0;
    std::vector<std::int64_t> rows{};  // of each MLP
    Gating gating{};
    float x_scale = 1;
    Nvfp4Activations activations = Nvfp4Activations::bf16;
    float input_scale = 0;        // of the matrices
    bool has_not_finite = false;  // values of rows, among others
    bool is_poisoned = false;     // columns that fill the last panel up: NaN in bf16, else numbers
  };
  explicit DeviceCase(const Shape& shape);

  Shape shape;
  std::int64_t num_rows = 0;
  std::vector<BFloat16> x;                // [inputs, hidden]
  std::vector<std::int32_t> row_indices;  // [num_rows]
  std::vector<MlpWeights> mlps;           // in memory of the host

  /// By the scalar CPU kernel: the tile order.
  [[nodiscard]] std::vector<float> cpu_results() const;
  /// By plain loops that know no lanes: the sums of tensor cores of a chip (docs/numerics.md), of
  /// activations in nvfp4 before sm_120 those of the library of grouped products.
  [[nodiscard]] std::vector<float> mma_results(int chip) const;
  /// What result row `row` is made of, as a JSON object: its MLP, whose weights are the same on
  /// every machine, and the bits of its input, 4 digits a number.
  [[nodiscard]] std::string input_text(std::int64_t row) const;
  /// By the kernels of a GPU.
  [[nodiscard]] std::vector<float> results_on(Device& device, DeviceKernels kernels,
                                              const GroupedLibrary* library = nullptr) const;

 private:
  void make_special_rows();
  void make_rows_not_finite();
  PackedMatrix make_matrix(std::int64_t rows, std::int64_t depth, std::uint64_t seed);

  std::vector<OwnedMatrix> memory_;
};

/// A row of activations in nvfp4: element k counts e2m1 codes[k] * e4m3 scales[k / 16] * power.
struct Nvfp4Row {
  std::vector<std::uint8_t> codes;   // [depth, a multiple of 64], zero beyond the row
  std::vector<std::uint8_t> scales;  // [depth / 16]
  float power = 1;                   // NaN for a row with a value that is not finite
};
/// As kernels/nvfp4_activations.h says, by the library of codes.
[[nodiscard]] Nvfp4Row quantize_row(std::span<const BFloat16> row, float input_scale = 0);

/// The layouts that GPUs have kernels for: each format, with groups and scales of every kind.
[[nodiscard]] std::vector<Layout> device_layouts();
/// "int4_group64wide"
[[nodiscard]] std::string layout_text(const Layout& layout);
/// Odd numbers of panels and steps; depths of more than one chunk of every kernel; every form of
/// gating, also of what is not finite; a single MLP with one row; 0 to 300 rows.
[[nodiscard]] std::vector<DeviceCase::Shape> device_shapes(
    const Layout& layout, Nvfp4Activations activations = Nvfp4Activations::bf16,
    float input_scale = 0);

/// How many results differ in their bits; NaNs are all the same.
[[nodiscard]] std::size_t different(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace moesaic
