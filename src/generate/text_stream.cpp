#include "src/generate/text_stream.h"

#include <utility>

namespace moesaic {

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                       std::vector<std::string> stop_strings)
    : decoder_(tokenizer), stops_(std::move(stop_strings)) {
  for (const std::int32_t token : prompt) static_cast<void>(decoder_.push(token));
}

std::string TextStream::push(std::int32_t token) {
  return stops_.push(decoder_.push(token));
}

std::string TextStream::finish() {
  std::string rest = stops_.push(decoder_.finish());
  return rest + stops_.finish();
}

}  // namespace moesaic
