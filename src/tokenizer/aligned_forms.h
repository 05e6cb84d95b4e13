#pragma once

#include <string_view>
#include <vector>

#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/unicode.h"

namespace moesaic {

/// normalized() as characters that say how many they replace, counted as the `tokenizers` library
/// does: of a decomposed character the first part replaces it, a composed one replaces its parts.
[[nodiscard]] std::vector<NewCharacter> normalized_characters(std::string_view text,
                                                              NormalForm form);

}  // namespace moesaic
