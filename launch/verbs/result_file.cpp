#include "launch/verbs/result_file.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <span>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::string_view kKind = "results";
constexpr std::int64_t kFormatVersion = 1;

std::string header_of(const RunIdentity& identity) {
  return JsonWriter()
      .field("moesaic", kKind)
      .field("version", kFormatVersion)
      .field("prompts", identity.prompts)
      .field("model", identity.model)
      .raw_field("options", identity.options)
      .text();
}

std::optional<Json> parse_header(std::string_view line, const std::string& path) {
  try {
    Json header = Json::parse(line, path);
    if (header.is_object() && header.at("moesaic").as_string() == kKind) return header;
  } catch (const Error&) {  // then it is no header
  }
  return std::nullopt;
}

}  // namespace

ResultFile::ResultFile(std::string path, const RunIdentity& identity)
    : path_(std::move(path)), file_(path_, OutputFile::Mode::kept) {
  require(file_.lock(), ErrorKind::usage, "{}: another process is writing to it", path_);
  read(identity);
  file_.resize(end_);
  if (end_ == 0) append(header_of(identity));
}

void ResultFile::append(std::string_view line) {
  const std::string bytes = fmt::format("{}\n", line);
  file_.write_at(end_, std::as_bytes(std::span(bytes)));
  end_ += std::ssize(bytes);
}

void ResultFile::read(const RunIdentity& identity) {
  std::ifstream stream(path_, std::ios::binary);
  require(stream.is_open(), ErrorKind::file, "cannot read the file {}", path_);
  std::string line;
  // A line that the end of the file ends is cut short.
  for (std::int64_t number = 1; std::getline(stream, line) && !stream.eof(); ++number) {
    if (number == 1) {
      check_header(line, identity);
    } else {
      note(line, number);
    }
    end_ += std::ssize(line) + 1;
  }
  require(end_ > 0 || header_of(identity).starts_with(line), ErrorKind::usage,
          "{}: is there, and is no file of results", path_);
}

void ResultFile::check_header(std::string_view line, const RunIdentity& identity) const {
  const std::optional<Json> header = parse_header(line, path_);
  require(header.has_value(), ErrorKind::usage, "{}: is there, and is no file of results", path_);
  const std::int64_t version = header->at("version").as_int();
  require(version == kFormatVersion, ErrorKind::usage,
          "{}: has results of version {}; this program writes version {}", path_, version,
          kFormatVersion);
  constexpr std::string_view kAdvice = "another --out starts anew";
  require(header->at("prompts").as_string() == identity.prompts, ErrorKind::usage,
          "{}: has results of other prompts; {}", path_, kAdvice);
  require(header->at("model").as_string() == identity.model, ErrorKind::usage,
          "{}: has results of another model; {}", path_, kAdvice);
  check_options(header->at("options"), identity);
}

void ResultFile::check_options(const Json& theirs, const RunIdentity& identity) const {
  const Json ours = Json::parse(identity.options, "options");
  theirs.for_each([&](const std::string& name, const Json& value) {
    const auto own = ours.find(name);
    require(own.has_value(), ErrorKind::usage,
            "{}: was written with --{} {}, which this program does not have", path_, name,
            value.as_string());
    require(own->as_string() == value.as_string(), ErrorKind::usage,
            "{}: was written with --{} {}, not {}; another --out starts anew", path_, name,
            value.as_string(), own->as_string());
  });
  require(ours.size() == theirs.size(), ErrorKind::usage,
          "{}: was written by a program with fewer options; another --out starts anew", path_);
}

void ResultFile::note(std::string_view line, std::int64_t number) {
  const Json record = Json::parse(line, fmt::format("{} line {}", path_, number));
  const auto sample = record.find("sample");
  done_.insert({record.at("index").as_int(), sample ? sample->as_int() : 0});
}

}  // namespace moesaic
