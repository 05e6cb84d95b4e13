#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/whole_product.h"

namespace moesaic {

/// A GPU of the fake driver.
[[nodiscard]] std::shared_ptr<const CudaDriver> fake_driver();

/// Random MLPs and rows for them, and what has to come out.
struct DeviceCase {
  struct Shape {
    Layout layout{};
    std::int64_t hidden = 0;
    std::int64_t width = 0;
    std::vector<std::int64_t> rows{};  // of each MLP
    Gating gating{};
    float x_scale = 1;
  };
  explicit DeviceCase(const Shape& shape);

  Shape shape;
  std::int64_t num_rows = 0;
  std::vector<BFloat16> x;                // [inputs, hidden]
  std::vector<std::int32_t> row_indices;  // [num_rows]
  std::vector<MlpWeights> mlps;           // in memory of the host

  /// By the scalar CPU kernel: the tile order.
  [[nodiscard]] std::vector<float> cpu_results() const;
  /// By plain loops that know no lanes: the sums of tensor cores of a chip (docs/numerics.md).
  [[nodiscard]] std::vector<float> mma_results(int chip) const;
  /// By kernels: those of the program, or what stands in their place.
  [[nodiscard]] std::vector<float> device_results(DeviceKernels kernels,
                                                  std::span<const DeviceImage> images) const;

 private:
  PackedMatrix make_matrix(std::int64_t rows, std::int64_t depth, std::uint64_t seed);

  std::vector<OwnedMatrix> memory_;
};

/// How many results differ in their bits; NaNs are all the same.
[[nodiscard]] std::size_t different(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace moesaic
