#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text_lines.h"
#include "launch/input/request_fields.h"
#include "launch/options/options.h"

namespace moesaic {

struct Prompt {
  std::string text;   // empty if the line has tokens or a conversation in its place
  std::string where;  // "--prompt", "FILE line 3"
  std::shared_ptr<const RequestFields> said{};  // by the line, but its text; null: nothing
  std::uint64_t checksum = 0;                   // of the line
  std::optional<Error> error{};                 // why it cannot be run
  bool is_chat = false;  // a chat template has made the text: no tokens are added, nor is it shown
  bool tells_checksum = false;  // its results do: it was not known when their file was made

  /// What the line says.
  [[nodiscard]] const RequestFields& fields() const;
};

/// What becomes of prompts that cannot be run.
enum class BadPrompts {
  refuse,  ///< their errors are thrown
  keep     ///< they have their error with them
};
/// Those of a file do not keep the others from their results, but with --strict.
[[nodiscard]] BadPrompts bad_prompts(const Options& options);

/// Calls `make`, which throws Error for a prompt that cannot be run: it is thrown, or kept.
void try_prompt(std::optional<Error>& kept, BadPrompts bad, const std::function<void()>& make);

/// Throws Error{file} for a line of a file that is not UTF-8, or has a NUL. `where` names it.
void require_text(std::string_view line, const std::string& where);

/// The first line of a file, which its { has made one of JSON: the hint says so where it is none.
[[nodiscard]] Json parse_first_line(std::string_view line, const std::string& where,
                                    std::string_view hint);

/// Hears several times a second that an input is read, also while nothing comes; may throw.
using InputWatch = std::function<void()>;

/// Throws Error{usage} unless there is one of --prompt and --file.
void require_one_input(const Options& options);

/// The prompts of --prompt or --file. Throws as require_one_input; Error{usage} if --prompt is not
/// UTF-8; Error{file} if the file cannot be read, and that of the first bad line if these are
/// refused.
[[nodiscard]] std::vector<Prompt> read_prompts(const Options& options, BadPrompts bad,
                                               const InputWatch& watch = {});

/// The lines of a file as prompts: JSONL objects (RequestFields) if the first that is not blank
/// starts with '{', else texts as they stand; blank lines are none.
class PromptLines {
 public:
  /// `file` stands in messages.
  explicit PromptLines(std::string file) : file_(std::move(file)) {}

  /// The prompt of the next line that is not blank; one that is not what it should be has its
  /// error. Throws Error{file} for the first one if it begins a JSON list.
  [[nodiscard]] Prompt parse(const TextLine& line);

 private:
  std::string file_;
  std::optional<bool> is_json_;  // once a line has told
};

/// The prompts in the text of a file.
[[nodiscard]] std::vector<Prompt> parse_prompts(std::string_view text, const std::string& file);

/// `path` in messages: "-" is the standard input.
[[nodiscard]] std::string input_name(const std::string& path);

/// The bytes of a file, or of the standard input for "-", without a byte order mark. Throws
/// Error{file} if it cannot be read.
[[nodiscard]] std::string read_file_bytes(const std::string& path, const InputWatch& watch = {});
/// The same. Throws Error{file} also if it is not UTF-8.
[[nodiscard]] std::string read_utf8_file(const std::string& path, const InputWatch& watch = {});

}  // namespace moesaic
