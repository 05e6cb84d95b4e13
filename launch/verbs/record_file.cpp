#include "launch/verbs/record_file.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr std::int64_t kRecordsVersion = 1;

std::optional<Json> parse_header(std::string_view line, std::string_view records,
                                 const std::string& path) {
  try {
    Json header = Json::parse(line, path);
    if (header.is_object() && header.at("moesaic").as_string() == records) return header;
  } catch (const Error&) {  // then it is no header
  }
  return std::nullopt;
}

}  // namespace

RecordFile::RecordFile(std::string path, const RecordKind& kind, const RunIdentity& identity,
                       const std::function<void(const Json& record)>& read, Others others)
    : path_(std::move(path)), kind_(kind), file_(path_, OutputFile::Mode::kept) {
  require(file_.lock(), ErrorKind::usage, "{}: another process is writing to it", path_);
  std::ifstream stream(path_, std::ios::binary);
  require(stream.is_open(), ErrorKind::file, "cannot read the file {}", path_);
  stream.exceptions(std::ios::badbit);  // what cannot be read is not the end of the file
  try {
    read_records(stream, identity, read);
  } catch (const std::ios::failure& failure) {
    fail(ErrorKind::file, "{}: cannot be read: {}", path_, failure.code().message());
  } catch (const Error&) {
    if (others == Others::refused) throw;
    end_ = 0;
  }
  file_.resize(end_);
  if (end_ > 0) return;
  append(header_of(identity));
  begin_ = end_;
}

void RecordFile::append(std::string_view lines) {
  file_.write_at(end_, std::as_bytes(std::span(lines)));
  end_ += std::ssize(lines);
}

void RecordFile::clear() {
  file_.resize(begin_);
  end_ = begin_;
}

void RecordFile::read_records(std::istream& stream, const RunIdentity& identity,
                              const std::function<void(const Json& record)>& read) {
  std::string line;
  // A line that the end of the file ends is cut short.
  for (std::int64_t number = 1; std::getline(stream, line) && !stream.eof(); ++number) {
    if (number == 1) {
      check_header(line, identity);
    } else {
      read(Json::parse(line, fmt::format("{} line {}", path_, number)));
    }
    end_ += std::ssize(line) + 1;
    if (number == 1) begin_ = end_;
  }
  require(end_ > 0 || header_of(identity).starts_with(line), ErrorKind::usage,
          "{}: is there, and is no file of {}", path_, kind_.records);
}

std::string RecordFile::header_of(const RunIdentity& identity) const {
  return JsonWriter()
             .field("moesaic", kind_.records)
             .field("version", kRecordsVersion)
             .field(kind_.inputs, identity.inputs)
             .field("model", identity.model)
             .raw_field("options", identity.options)
             .text() +
         "\n";
}

void RecordFile::check_header(std::string_view line, const RunIdentity& identity) const {
  const std::optional<Json> header = parse_header(line, kind_.records, path_);
  require(header.has_value(), ErrorKind::usage, "{}: is there, and is no file of {}", path_,
          kind_.records);
  const std::int64_t version = header->at("version").as_int();
  require(version == kRecordsVersion, ErrorKind::usage,
          "{}: has {} of version {}; this program writes version {}", path_, kind_.records, version,
          kRecordsVersion);
  require(header->at(kind_.inputs).as_string() == identity.inputs, ErrorKind::usage,
          "{}: has {} of other {}; another {} starts anew", path_, kind_.records, kind_.inputs,
          kind_.option);
  require(header->at("model").as_string() == identity.model, ErrorKind::usage,
          "{}: has {} of another model; another {} starts anew", path_, kind_.records,
          kind_.option);
  check_options(header->at("options"), identity);
}

void RecordFile::check_options(const Json& theirs, const RunIdentity& identity) const {
  const Json ours = Json::parse(identity.options, "options");
  theirs.for_each([&](const std::string& name, const Json& value) {
    const auto own = ours.find(name);
    require(own.has_value(), ErrorKind::usage,
            "{}: was written with --{} {}, which this program does not have", path_, name,
            value.as_string());
    require(own->as_string() == value.as_string(), ErrorKind::usage,
            "{}: was written with --{} {}, not {}; another {} starts anew", path_, name,
            value.as_string(), own->as_string(), kind_.option);
  });
  require(ours.size() == theirs.size(), ErrorKind::usage,
          "{}: was written by a program with fewer options; another {} starts anew", path_,
          kind_.option);
}

}  // namespace moesaic
