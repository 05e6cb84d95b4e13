#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/generate/stop_strings.h"
#include "src/tokenizer/tokenizer.h"

namespace moesaic {

/// The text of a continuation as its tokens come, up to a stop string.
class TextStream {
 public:
  /// A token's text can depend on the tokens before it, so `prompt` is decoded too, and dropped.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
             std::vector<std::string> stop_strings);

  /// The text that is certain with this token; often none in the middle of a character or of what
  /// may become a stop string.
  [[nodiscard]] std::string push(std::int32_t token);
  /// What was held back. No token may follow.
  [[nodiscard]] std::string finish();
  /// The stop string that ended the text.
  [[nodiscard]] const std::optional<std::string>& stopped_by() const noexcept {
    return stops_.found();
  }

 private:
  StreamDecoder decoder_;
  StopStrings stops_;
};

}  // namespace moesaic
