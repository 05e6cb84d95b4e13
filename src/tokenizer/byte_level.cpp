#include "src/tokenizer/byte_level.h"

#include <array>

#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    characters[byte] = is_printable(byte) ? byte : next++;
  }
  return characters;
}
constexpr std::array<char32_t, 256> kCharacters = make_characters();

/// Inverse of kCharacters; -1 for code points that stand for no byte.
constexpr std::array<short, 0x144> make_bytes() {
  std::array<short, 0x144> bytes{};
  for (short& byte : bytes) byte = -1;
  for (short byte = 0; byte < 256; ++byte)
    bytes[kCharacters[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}
constexpr std::array<short, 0x144> kBytes = make_bytes();

}  // namespace

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_utf8(kCharacters[static_cast<unsigned char>(byte)], out);
}

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code_point = next_code_point(text, at);
    if (code_point >= kBytes.size() || kBytes[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code_point]));
  }
  return bytes;
}

}  // namespace moesaic
