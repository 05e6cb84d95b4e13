#include "src/tokenizer/decode_stages.h"

#include <charconv>
#include <optional>

#include "src/tokenizer/byte_level.h"

namespace moesaic {
namespace {

/// The byte that a token such as "<0x0A>" stands for.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.starts_with('+')) digits.remove_prefix(1);  // Rust reads numbers with a sign
  unsigned value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

void WholeTokenStage::push(std::string_view part, bool ends_token) {
  if (token_.empty() && ends_token) return push_token(part);
  token_ += part;
  if (!ends_token) return;
  push_token(token_);
  token_.clear();
}

void ByteLevelStage::push_token(std::string_view token) {
  std::string text;
  const std::optional<std::string> bytes = bytes_of_byte_level(token);
  repair_.push(bytes ? std::string_view(*bytes) : token, text);
  next_.push(text, false);
}

void ByteLevelStage::finish() {
  std::string text;
  repair_.finish(text);
  next_.push(text, true);
  next_.finish();
}

void ByteFallbackStage::push_token(std::string_view token) {
  if (const auto byte = byte_of(token)) {
    bytes_ += *byte;
    return;
  }
  flush();
  next_.push(token, true);
}

void ByteFallbackStage::flush() {
  if (bytes_.empty()) return;
  if (is_valid_utf8(bytes_)) {
    next_.push(bytes_, true);
  } else {
    for (std::size_t i = 0; i < bytes_.size(); ++i) next_.push(kReplacementCharacter, true);
  }
  bytes_.clear();
}

void ByteFallbackStage::finish() {
  flush();
  next_.finish();
}

void FuseStage::finish() {
  next_.push("", true);
  next_.finish();
}

void StripStage::push(std::string_view part, bool ends_token) {
  std::string out;
  for (std::size_t at = 0; at < part.size();) {
    const char32_t character = next_code_point(part, at);
    const bool is_content = character == options_.content;
    if (in_front_ && is_content && cut_ < options_.start) {
      ++cut_;
      continue;
    }
    in_front_ = false;
    if (is_content && held_ < options_.stop) {
      ++held_;
      continue;
    }
    // Of a longer run of `content` the last ones are held; which ones makes no difference.
    if (!is_content) {
      for (; held_ > 0; --held_) append_utf8(options_.content, out);
    }
    append_utf8(character, out);
  }
  next_.push(out, ends_token);
  if (!ends_token) return;
  cut_ = held_ = 0;
  in_front_ = true;
}

void MetaspaceStage::push(std::string_view part, bool ends_token) {
  const bool vanishes = in_first_token_ && options_.prepend_scheme != PrependScheme::never;
  std::string out;
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t begin = at;
    if (next_code_point(part, at) != options_.replacement) {
      out += part.substr(begin, at - begin);
    } else if (!vanishes) {
      out += ' ';
    }
  }
  next_.push(out, ends_token);
  if (ends_token) in_first_token_ = false;
}

void JoinStage::push(std::string_view part, bool ends_token) {
  if (between_) next_.push(" ", false);
  between_ = ends_token;
  next_.push(part, ends_token);
}

}  // namespace moesaic
