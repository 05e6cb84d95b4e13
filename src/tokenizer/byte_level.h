#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moesaic {

/// Byte-level vocabularies write every byte as one printable character: 0x21..0x7E, 0xA1..0xAC and
/// 0xAE..0xFF as the code point of that number, the other 68 bytes as U+0100, U+0101, ... in order
/// (openai/gpt-2, encoder.py, bytes_to_unicode).
void append_byte_level(std::string_view bytes, std::string& out);

/// The bytes that `text`, which must be UTF-8, stands for; nothing if one of its characters stands
/// for none.
[[nodiscard]] std::optional<std::string> bytes_of_byte_level(std::string_view text);

}  // namespace moesaic
