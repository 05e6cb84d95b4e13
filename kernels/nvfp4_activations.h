#pragma once

#include <span>

namespace moesaic {

/// Rounds a row of activations to NVFP4, as GPUs do before W4A4 products: in groups of 16, to
/// multiples e2m1 of an e4m3 scale, times a scale g of the whole row.
///
///   g = 2^ceil(log2(amax / (6 * 448))), s = e4m3(amax16 / (6 g)), x = e2m1(x * (1 / (s g))) * s *
///   g
///
/// g is a power of two, so that the results are exact in bf16 and the products of W4A16 kernels on
/// them are those of W4A4. (GPU engines take a calibrated g of the whole tensor, or a float one per
/// token; the error is the same.) A row with an infinity or a NaN becomes NaN.
///
/// With a calibrated scale, not 0, g is that, of whatever value; results are without it, and so
/// exact in bf16 too: the matrix's own scale has it (PackedMatrix::input_scale). Magnitudes that
/// are too large become the largest.
void round_to_nvfp4(std::span<float> row, float input_scale = 0);

}  // namespace moesaic
