#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/options/options.h"
#include "launch/verbs/request_fields.h"

namespace moesaic {

struct Prompt {
  std::string text;   // empty if the line has tokens or a conversation in its place
  std::string where;  // "--prompt", "FILE line 3"
  std::shared_ptr<const RequestFields> said{};  // by the line, but its text; null: nothing

  /// What the line says.
  [[nodiscard]] const RequestFields& fields() const;
};

/// The prompts of --prompt or --file. Throws Error{usage} if there is none or both, or if --prompt
/// is not UTF-8; Error{file} if the file cannot be read or is not what it should be.
[[nodiscard]] std::vector<Prompt> read_prompts(const Options& options);

/// The prompts in the text of a file: JSONL objects (RequestFields) if the first line
/// starts with '{', else one a line, as it stands. `file` stands in messages.
[[nodiscard]] std::vector<Prompt> parse_prompts(std::string_view text, const std::string& file);

/// `path` in messages: "-" is the standard input.
[[nodiscard]] std::string input_name(const std::string& path);

/// The bytes of a file, or of the standard input for "-". Throws Error{file} if it cannot be read
/// or is not UTF-8.
[[nodiscard]] std::string read_utf8_file(const std::string& path);

}  // namespace moesaic
