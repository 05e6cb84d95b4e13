#pragma once

#include <cstdint>

#include "src/checkpoint/codecs/matrix_codec.h"
#include "src/checkpoint/codecs/scale_tensor.h"

namespace moesaic {

/// Scales that lie as the weights do: element (n, k) has scale (n / block_rows, k / block_cols).
struct ScaleGrid {
  ScaleTensor scales;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;

  [[nodiscard]] std::int64_t row(std::int64_t n) const noexcept { return n / block_rows; }
  [[nodiscard]] std::int64_t col(std::int64_t k) const noexcept { return k / block_cols; }
};

/// Codes whose outermost dimension is that of the rows (or of pairs of rows), with a grid of float
/// scales.
class GridScaledCodec : public MatrixCodec {
 public:
  GridScaledCodec(const StoredMatrix& matrix, const Layout& layout, const StoredTensor& codes,
                  const ScaleGrid& grid)
      : MatrixCodec(matrix, layout, grid.scales.tensor()), codes_(codes), grid_(grid) {}

  void for_each_bytes(const RowRange& rows, const BytesCall& call) const override;

 protected:
  void fill(const RowRange& rows, QuantizedRows& out) const override;
  /// `codes` has cols() elements.
  virtual void fill_codes(std::int64_t row, std::uint8_t* codes) const = 0;

  [[nodiscard]] const StoredTensor& codes() const noexcept { return codes_; }
  [[nodiscard]] const ScaleGrid& grid() const noexcept { return grid_; }

 private:
  StoredTensor codes_;
  ScaleGrid grid_;
};

}  // namespace moesaic
