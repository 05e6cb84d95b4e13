#include "launch/input/prompts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"
#include "base/text_lines.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

/// The id of a line that is wrong in something else, if it has one.
std::shared_ptr<const RequestFields> id_of(const Json& line) {
  try {
    const auto id = line.find("id");
    if (!id) return nullptr;
    RequestFields fields;
    fields.id = id_text(*id);
    return std::make_shared<const RequestFields>(std::move(fields));
  } catch (const Error&) {
    return nullptr;
  }
}

constexpr std::string_view kFirstHint =
    "as the first line begins with {, each is a JSON object; --whole-file makes all one prompt";

/// Whether a file that begins with this line is a JSON list of requests, and no lines of them.
/// Texts may begin with [INST].
bool begins_list(std::string_view line) {
  std::size_t at = line.find_first_not_of(" \t\r");
  if (at == std::string_view::npos || line[at] != '[') return false;
  at = line.find_first_not_of(" \t\r", at + 1);
  return at == std::string_view::npos || line[at] == '{';
}

void parse_object(const Json& json, Prompt& prompt) {
  prompt.said = id_of(json);
  if (const auto text = json.find("prompt"); text && text->is_string()) {
    prompt.text = text->as_string();  // for the result of a line that is wrong in something else
  }
  RequestFields fields = parse_request_fields(json);
  if (fields.prompt) prompt.text = std::exchange(*fields.prompt, "");
  prompt.said = std::make_shared<const RequestFields>(std::move(fields));
}

/// A whole file is one prompt, but for the end of its last line.
Prompt whole_file(const std::string& path, const InputWatch& watch) {
  std::string text = read_utf8_file(path, watch);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return {.text = text, .where = input_name(path), .checksum = checksum(text)};
}

/// A file that may be a pipe or a device, or for "-" the standard input, open to be read.
class Input {
 public:
  explicit Input(const std::string& path)
      : name_(input_name(path)),
        owned_(path == "-" ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
        descriptor_(path == "-" ? STDIN_FILENO : owned_.number()) {
    require(descriptor_ >= 0, ErrorKind::file, "{}: {}", name_,
            errno == ENOENT ? "no such file" : std::strerror(errno));
  }

  /// The next bytes; none at the end.
  [[nodiscard]] std::size_t read(std::span<char> bytes, const InputWatch& watch) const {
    while (true) {
      if (watch && !is_readable(descriptor_, kMoment)) {
        watch();
        continue;
      }
      const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
      if (count >= 0) return static_cast<std::size_t>(count);
      require(errno == EINTR, ErrorKind::file, "{}: cannot be read: {}", name_,
              std::strerror(errno));
    }
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static constexpr std::chrono::milliseconds kMoment{200};

  std::string name_;
  Descriptor owned_;  // none for the standard input
  int descriptor_;
};

/// All of an input. Devices that never end are noticed.
std::string read_text(const Input& input, const InputWatch& watch) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 30;
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::string text;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kPieceBytes);
    text.resize(before + input.read({text.data() + before, kPieceBytes}, watch));
    if (watch) watch();
    if (text.size() == before) return text;
    require(text.find('\0', before) == std::string::npos, ErrorKind::file,
            "{} is no text: byte {} is NUL", input.name(), text.find('\0', before));
    require(text.size() <= kMostBytes, ErrorKind::file, "{} has more than {} bytes", input.name(),
            kMostBytes);
  }
}

}  // namespace

BadPrompts bad_prompts(const Options& options) {
  return options.strict || !options.file ? BadPrompts::refuse : BadPrompts::keep;
}

void try_prompt(std::optional<Error>& kept, BadPrompts bad, const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    if (bad == BadPrompts::refuse) throw;
    kept = error;
  }
}

void require_text(std::string_view line, const std::string& where) {
  require(is_valid_utf8(line), ErrorKind::file, "{} is not UTF-8", where);
  require(line.find('\0') == line.npos, ErrorKind::file, "{} is no text: it has a NUL", where);
}

Json parse_first_line(std::string_view line, const std::string& where, std::string_view hint) {
  try {
    return Json::parse(line, where);
  } catch (const Error& error) {
    fail(error.kind(), "{} ({})", error.what(), hint);
  }
}

const RequestFields& Prompt::fields() const {
  static const RequestFields kNothing;
  return said ? *said : kNothing;
}

std::string input_name(const std::string& path) {
  return path == "-" ? "the standard input" : path;
}

std::string read_file_bytes(const std::string& path, const InputWatch& watch) {
  std::string text = read_text(Input(path), watch);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::string read_utf8_file(const std::string& path, const InputWatch& watch) {
  std::string text = read_file_bytes(path, watch);
  if (is_valid_utf8(text)) return text;
  TextLines lines(text);
  std::optional<TextLine> line = lines.next();
  while (is_valid_utf8(line->text)) line = lines.next();
  fail(ErrorKind::file, "{} is not UTF-8", line->where(input_name(path)));
}

Prompt PromptLines::parse(const TextLine& of) {
  const std::string_view line = of.text;
  const bool is_first = !is_json_.has_value();
  if (is_first) {
    require(
        !begins_list(line), ErrorKind::file,
        "{} begins a JSON list, and prompts are a line each, texts or JSON objects: jq -c '.[]' "
        "makes lines of a list; --whole-file makes all one prompt",
        of.where(file_));
    is_json_ = line.find_first_not_of(" \t\r") == line.find('{');
  }
  Prompt prompt{.text = "", .where = of.where(file_), .checksum = checksum(line)};
  try_prompt(prompt.error, BadPrompts::keep, [&] {
    if (!*is_json_) prompt.text = line;
    require_text(line, prompt.where);
    if (!*is_json_) return;
    const Json object = is_first ? parse_first_line(line, prompt.where, kFirstHint)
                                 : Json::parse(line, prompt.where);
    parse_object(object, prompt);
  });
  return prompt;
}

std::vector<Prompt> parse_prompts(std::string_view text, const std::string& file) {
  std::vector<Prompt> prompts;
  PromptLines parser(file);
  TextLines lines(text);
  while (const auto line = lines.next_filled()) prompts.push_back(parser.parse(*line));
  return prompts;
}

void require_one_input(const Options& options) {
  require(options.prompt.has_value() || options.file.has_value(), ErrorKind::usage,
          "no prompt: --prompt TEXT or --file FILE gives one");
  require(!options.prompt.has_value() || !options.file.has_value(), ErrorKind::usage,
          "--prompt and --file exclude each other");
}

std::vector<Prompt> read_prompts(const Options& options, BadPrompts bad, const InputWatch& watch) {
  require_one_input(options);
  if (options.prompt) {
    require(is_valid_utf8(*options.prompt), ErrorKind::usage, "the text of --prompt is not UTF-8");
    return {{.text = *options.prompt, .where = "--prompt", .checksum = checksum(*options.prompt)}};
  }
  if (options.whole_file) return {whole_file(*options.file, watch)};
  const std::string name = input_name(*options.file);
  std::vector<Prompt> prompts = parse_prompts(read_file_bytes(*options.file, watch), name);
  require(!prompts.empty(), ErrorKind::file, "{} holds no prompt: it is empty", name);
  for (const Prompt& prompt : prompts) {
    if (prompt.error && bad == BadPrompts::refuse) throw *prompt.error;
  }
  return prompts;
}

}  // namespace moesaic
