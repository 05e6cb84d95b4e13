#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

/// What stands at the start of some bytes.
struct Sequence {
  std::size_t bytes = 0;  ///< of the character, or of the maximal part that is not one
  bool valid = false;
  bool incomplete = false;  ///< a character that more bytes could complete
};

/// The bounds of the second byte differ from 80..BF after four lead bytes (Unicode, table 3-7).
bool second_byte_fits(unsigned char lead, unsigned char second) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= low && second <= high;
}

Sequence read_sequence(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t wanted = utf8_length(text[at]);
  for (std::size_t i = 1; i < wanted; ++i) {
    if (at + i == text.size()) return {i, false, true};
    const unsigned char byte = byte_at(text, at + i);
    const bool fits = i == 1 ? second_byte_fits(lead, byte) : (byte & 0xC0) == 0x80;
    if (!fits) return {i, false, false};
  }
  return {wanted, true, false};
}

}  // namespace

bool is_valid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const Sequence found = read_sequence(text, at);
    if (!found.valid) return false;
    at += found.bytes;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Repair repair;
  repair.push(text, out);
  repair.finish(out);
  return out;
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_ + std::string(bytes);
    held_.clear();
    bytes = joined;
  }
  std::size_t valid_from = 0;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Sequence found = read_sequence(bytes, at);
    if (!found.valid) {
      out.append(bytes.substr(valid_from, at - valid_from));
      valid_from = at + found.bytes;
      if (found.incomplete) {
        held_ = bytes.substr(at);
      } else {
        out.append(kReplacementCharacter);
      }
    }
    at += found.bytes;
  }
  if (valid_from < at) out.append(bytes.substr(valid_from, at - valid_from));
}

void Utf8Repair::finish(std::string& out) {
  if (!held_.empty()) out.append(kReplacementCharacter);
  held_.clear();
}

char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  const std::size_t length = utf8_length(text[at]);
  const char32_t lead = byte_at(text, at);
  char32_t code_point = length == 1 ? lead : lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    code_point = (code_point << 6) | (byte_at(text, at + i) & 0x3FU);
  }
  at += length;
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0U | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0U | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace moesaic
