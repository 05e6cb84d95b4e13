#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/matrix_view.h"
#include "kernels/grouped_gemm.h"
#include "src/moe/int8_rows.h"
#include "src/moe/moe_options.h"
#include "src/moe/token_exchange.h"
#include "src/moe/wire_rows.h"

namespace moesaic {

/// How rows of activations travel to their experts.
enum class RowForm {
  plain,   ///< as products take them
  codes,   ///< as the int8 codes that products of all experts make of them
  rounded  ///< to WireForm::int8
};

/// Rows as products take them, of sources whose rows travelled in another form.
class DecodedRows {
 public:
  /// Makes room for rows of `row_bytes` of the sources [0, sources), none of which is there yet.
  void start(std::int64_t sources, std::int64_t row_bytes);
  [[nodiscard]] std::byte* row(std::int64_t source) const {
    return rows_.data() + source * row_bytes_;
  }
  /// Those of `sources` that are not there, each once: they count as there from now on. Valid until
  /// the next call.
  [[nodiscard]] std::span<const std::int64_t> take_missing(std::span<const std::int32_t> sources);

 private:
  std::int64_t row_bytes_ = 0;
  Buffer<std::byte> rows_;             // [sources, row_bytes]
  std::vector<bool> is_there_;         // [sources]
  std::vector<std::int64_t> missing_;  // scratch
};

/// Makes of activations what travels to experts, and of what has come what their products take.
class RowCoder {
 public:
  RowCoder(std::int64_t hidden, RowSource::Element element, const Compute& compute)
      : hidden_(hidden), element_(element), compute_(compute) {}

  /// Says that products of all experts, also of other ranks, make the same codes of a row.
  void take_int8(const Int8Rows& codes) { codes_ = codes; }

  /// A training pass goes back through what products took, so its rows are plain.
  [[nodiscard]] RowForm form(const MoeOptions& options, bool is_training) const;
  /// Bytes of a row as products take it.
  [[nodiscard]] std::int64_t row_bytes() const { return hidden_ * element_bytes(element_); }

  /// Overwrites the activations of `rows` with `x` [tokens, hidden].
  void encode(MatrixView<const float> x, RowForm form, WireRows& rows) const;
  /// Decodes those of `sources` that are not decoded; their rows are here. `form` is not plain.
  void decode(std::span<const std::int32_t> sources, RowForm form, const PendingDispatch& dispatch,
              DecodedRows& rows) const;
  /// Numbers of a row as products take them.
  void write_numbers(std::span<const float> numbers, std::byte* to) const;

 private:
  [[nodiscard]] WireCodec rounding() const { return {WireForm::int8, *compute_.vector}; }

  std::int64_t hidden_;
  RowSource::Element element_;
  Compute compute_;
  std::optional<Int8Rows> codes_;
};

}  // namespace moesaic
