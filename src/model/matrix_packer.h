#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/weight_format.h"
#include "src/checkpoint/matrix_source.h"
#include "src/model/weight_layout.h"

namespace moesaic {

/// Scratch memory of one thread that packs.
struct PackScratch {
  std::vector<float> values;  // 16 rows
  QuantizedRows rows;         // 16 rows
};

/// Calls body(); an Error{file} of it, such as that a row cannot be quantised, is thrown with the
/// name of the weight.
template <typename Body>
void naming_weight(const std::string& name, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    fail(ErrorKind::file, "weight \"{}\" cannot be packed: {}", name, error.what());
  }
}

/// Packs a matrix panel by panel. Its rows are those of `parts`, which stand one below the other;
/// if their codes are kept, parts agree as LayoutChoice::stacked demands. Owns nothing; cheap to
/// make.
class MatrixPacker {
 public:
  MatrixPacker(const Packing& packing, std::span<const MatrixSource> parts);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t depth() const noexcept { return parts_.front().cols(); }
  [[nodiscard]] std::int64_t num_panels() const noexcept { return panel_count(rows_); }

  /// Whether packing a panel takes a look at other rows first (measure).
  [[nodiscard]] bool must_measure() const noexcept {
    return !packing_.keeps_codes && MatrixScales::needed(packing_.layout.format);
  }
  /// Panels that are best packed together, the first of them at a multiple of this: enough work to
  /// hide handing it out, and all that measure() has to see.
  [[nodiscard]] std::int64_t panels_together() const noexcept;
  /// Takes in the rows of panels [first, end).
  void measure(std::int64_t first, std::int64_t end, PackScratch& scratch);

  /// Writes panels [first, end), which have been measured if they must be, to `out`.
  void pack(std::int64_t first, std::int64_t end, std::byte* out, PackScratch& scratch) const;
  /// PackedMatrix::scale; of a matrix that must be measured, after that.
  [[nodiscard]] float scale() const noexcept;
  /// PackedMatrix::order, or empty.
  [[nodiscard]] std::span<const std::int32_t> order() const noexcept;

  /// call(bytes) for the mapped bytes of the checkpoint that panels [first, end) are read from.
  void for_each_source(std::int64_t first, std::int64_t end,
                       const std::function<void(std::span<const std::byte>)>& call) const;

 private:
  void pack_plain(std::int64_t panel, std::byte* out, PackScratch& scratch) const;
  void pack_codes(std::int64_t panel, std::byte* out, PackScratch& scratch) const;
  void quantize(std::int64_t panel, std::byte* out, PackScratch& scratch) const;

  Packing packing_;
  std::span<const MatrixSource> parts_;
  std::int64_t rows_ = 0;
  std::optional<MatrixScales> scales_;
};

}  // namespace moesaic
