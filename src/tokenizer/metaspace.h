#pragma once

#include "base/json.h"

namespace moesaic {

/// Which pieces get the mark of a space in front.
enum class PrependScheme { first, never, always };

/// Members of a Metaspace, which is a pre-tokenizer and a decoder.
struct MetaspaceOptions {
  char32_t replacement = 0x2581;  ///< the mark of a space, "▁"
  PrependScheme prepend_scheme = PrependScheme::always;
  bool split = true;  ///< whether a piece begins at every mark
};

/// Reads them, also in the older form with "add_prefix_space". Throws Error{file} where they are
/// wrong or contradict each other.
[[nodiscard]] MetaspaceOptions metaspace_options(const Json& part);

}  // namespace moesaic
