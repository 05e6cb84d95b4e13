#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace moesaic {

/// Bytes begin..end of a text.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] std::string_view of(std::string_view text) const {
    return text.substr(begin, size());
  }
};

/// The tokens of a text.
struct EncodedText {
  std::vector<std::int32_t> ids;
  /// Which bytes of the text each token stands for; several may stand for parts of one character.
  /// Empty for tokens of the post-processor. There are none unless they were asked for.
  std::vector<Span> spans;
};

}  // namespace moesaic
