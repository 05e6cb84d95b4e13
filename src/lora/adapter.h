#pragma once

#include <cstdint>
#include <span>

#include "kernels/packed_matrix.h"

namespace moesaic {

/// A low-rank addition to rows [first_row, first_row + b.rows) of a matrix W [out, in]:
/// y += scale * (x A^T) B^T. Owns nothing.
struct Adapter {
  PackedMatrix a{};            // [rank, in], in the format of activations: bf16 or f32
  PackedMatrix b{};            // [rows, rank]
  float scale = 0;             // of x A^T, in f32, before it is rounded like any input of a product
  std::int64_t first_row = 0;  // queries, keys and values are rows of one stacked matrix
  std::int32_t index = -1;     // in its AdapterSet: where its gradients go
  std::uint64_t key = 0;       // of its module, wherever it is: for DropoutMask
  /// Of a part of an adapter, whose B are some rows of a longer one: the first of them, for their
  /// gradients.
  std::int64_t first_b_row = 0;
  /// Of a composite, the adapter of a stacked matrix: those of its rows, in their order. A has
  /// theirs one below the other, B [out, rank] theirs as blocks and zeros elsewhere. None: it is
  /// one by itself.
  std::span<const Adapter> parts{};

  [[nodiscard]] std::int64_t rank() const noexcept { return a.rows; }
};

/// call(part, first): the adapters that a composite consists of, or itself, and where its rows of A
/// begin.
template <typename Call>
void for_each_part(const Adapter& adapter, const Call& call) {
  if (adapter.parts.empty()) return call(adapter, std::int64_t{0});
  std::int64_t first = 0;
  for (const Adapter& part : adapter.parts) {
    call(part, first);
    first += part.rank();
  }
}

}  // namespace moesaic
