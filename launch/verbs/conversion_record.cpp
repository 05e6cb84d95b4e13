#include "launch/verbs/conversion_record.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/checksum.h"
#include "base/error.h"

namespace moesaic {
namespace {

/// Entries of a shard, as they follow each other in the manifest.
std::vector<PackedEntry*> entries_of_shard(PackedManifest& manifest, std::int64_t shard) {
  std::vector<PackedEntry*> entries;
  for (PackedEntry& entry : manifest.entries) {
    if (entry.shard == shard) entries.push_back(&entry);
  }
  return entries;
}

}  // namespace

ConversionRecord::ConversionRecord(const std::string& path, const RunIdentity& identity,
                                   PackedManifest& manifest)
    : manifest_(manifest),
      file_(
          path, {.records = "conversion", .inputs = "output", .option = "--output"}, identity,
          [this](const Json& record) { note(record); }, RecordFile::Others::replaced) {
  if (!file_.has_records()) whole_ = 0;
}

void ConversionRecord::note(const Json& record) {
  const std::vector<PackedEntry*> entries = entries_of_shard(manifest_, whole_);
  const Json checksums = record.at("checksums");
  const Json scales = record.at("scales");
  const bool is_next = record.at("shard").as_int() == whole_ && !entries.empty() &&
                       checksums.size() == std::ssize(entries) &&
                       scales.size() == std::ssize(entries);
  require(is_next, ErrorKind::file, "{}: is not of shard {}", record.where(), whole_);
  for (std::int64_t i = 0; i < std::ssize(entries); ++i) {
    const auto sum = checksum_from_text(checksums.at(i).as_string());
    require(sum.has_value(), ErrorKind::file, "{}: is no checksum", checksums.at(i).where());
    PackedEntry& entry = *entries[static_cast<std::size_t>(i)];
    entry.checksum = *sum;
    entry.scale = static_cast<float>(scales.at(i).as_double());
  }
  ++whole_;
}

void ConversionRecord::add() {
  std::vector<std::string> checksums;
  std::vector<double> scales;  // so that the bits come back
  for (const PackedEntry* entry : entries_of_shard(manifest_, whole_)) {
    checksums.push_back(checksum_text(entry->checksum));
    scales.push_back(double{entry->scale});
  }
  file_.append(JsonWriter()
                   .field("shard", whole_)
                   .raw_field("checksums", json_strings(checksums))
                   .raw_field("scales", fmt::format("[{}]", fmt::join(scales, ", ")))
                   .text() +
               "\n");
  file_.sync();
  ++whole_;
}

void ConversionRecord::clear() {
  file_.clear();
  whole_ = 0;
}

}  // namespace moesaic
