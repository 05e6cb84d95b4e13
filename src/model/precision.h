#pragma once

#include "kernels/attention_blocks.h"
#include "kernels/format.h"
#include "kernels/gemm_kernel.h"

namespace moesaic {

/// What activations are rounded to before a product, and how weights and the key-value cache are
/// kept. The residual stream, norms, softmax and the router are f32 in both.
enum class Precision { bf16, f32 };

[[nodiscard]] constexpr Format weight_format(Precision precision) noexcept {
  return precision == Precision::bf16 ? Format::bf16 : Format::f32;
}
[[nodiscard]] constexpr RowSource::Element activation_element(Precision precision) noexcept {
  return precision == Precision::bf16 ? RowSource::Element::bf16 : RowSource::Element::f32;
}
[[nodiscard]] constexpr std::int64_t element_bytes(Precision precision) noexcept {
  return precision == Precision::bf16 ? 2 : 4;
}
[[nodiscard]] constexpr AttentionKind attention_kind(Precision precision) noexcept {
  return precision == Precision::bf16 ? AttentionKind::bf16 : AttentionKind::f32;
}

}  // namespace moesaic
