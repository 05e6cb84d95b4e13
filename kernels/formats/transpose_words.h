#pragma once

#include <cstddef>
#include <span>

namespace moesaic {

/// Transposes up to 16 rows of 4-byte words: word w of row r goes to out[w][r], out being
/// [padded_bytes / 4][16] words. Missing rows and the bytes from row_bytes to padded_bytes (a
/// multiple of 64) become zero. Rows need no alignment.
void transpose_words(std::span<const std::byte* const> rows, std::size_t row_bytes,
                     std::size_t padded_bytes, std::byte* out);

}  // namespace moesaic
