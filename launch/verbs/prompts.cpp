#include "launch/verbs/prompts.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "src/tokenizer/utf8.h"

namespace moesaic {
namespace {

Prompt parse_json_line(std::string_view line, const std::string& where) {
  RequestFields fields = parse_request_fields(Json::parse(line, where));
  Prompt prompt{.text = "", .where = where};
  if (fields.prompt) prompt.text = std::exchange(*fields.prompt, "");
  prompt.said = std::make_shared<const RequestFields>(std::move(fields));
  return prompt;
}

/// All of an input, which may be a pipe. Devices that never end are noticed.
std::string read_text(std::istream& stream, const std::string& name) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 30;
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  std::string text;
  while (stream.good()) {
    const std::size_t before = text.size();
    text.resize(before + kPieceBytes);
    stream.read(text.data() + before, static_cast<std::streamsize>(kPieceBytes));
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
    require(text.find('\0', before) == std::string::npos, ErrorKind::file,
            "{} is no text: byte {} is NUL", name, text.find('\0', before));
    require(text.size() <= kMostBytes, ErrorKind::file, "{} has more than {} bytes", name,
            kMostBytes);
  }
  require(!stream.bad(), ErrorKind::file, "cannot read {}", name);
  return text;
}

}  // namespace

const RequestFields& Prompt::fields() const {
  static const RequestFields kNothing;
  return said ? *said : kNothing;
}

std::string input_name(const std::string& path) {
  return path == "-" ? "the standard input" : path;
}

std::string read_utf8_file(const std::string& path) {
  std::string text;
  if (path == "-") {
    text = read_text(std::cin, input_name(path));
  } else {
    require(!std::filesystem::is_directory(path), ErrorKind::file,
            "cannot read {}: it is a directory", path);
    std::ifstream stream(path, std::ios::binary);
    require(stream.is_open(), ErrorKind::file, "cannot read the file {}", path);
    text = read_text(stream, path);
  }
  require(is_valid_utf8(text), ErrorKind::file, "the text of {} is not UTF-8", input_name(path));
  return text;
}

std::vector<Prompt> parse_prompts(std::string_view text, const std::string& file) {
  std::vector<Prompt> prompts;
  const bool is_json =
      text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size())).starts_with('{');
  for (std::int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string where = fmt::format("{} line {}", file, number);
    if (is_json) {
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      prompts.push_back(parse_json_line(line, where));
    } else {
      prompts.push_back({.text = std::string(line), .where = where});
    }
  }
  return prompts;
}

std::vector<Prompt> read_prompts(const Options& options) {
  require(options.prompt.has_value() || options.file.has_value(), ErrorKind::usage,
          "no prompt: --prompt TEXT or --file FILE gives one");
  require(!options.prompt.has_value() || !options.file.has_value(), ErrorKind::usage,
          "--prompt and --file exclude each other");
  if (options.prompt) {
    require(is_valid_utf8(*options.prompt), ErrorKind::usage, "the text of --prompt is not UTF-8");
    return {{.text = *options.prompt, .where = "--prompt"}};
  }
  const std::string name = input_name(*options.file);
  std::vector<Prompt> prompts = parse_prompts(read_utf8_file(*options.file), name);
  require(!prompts.empty(), ErrorKind::usage, "{} holds no prompt: it is empty", name);
  return prompts;
}

}  // namespace moesaic
