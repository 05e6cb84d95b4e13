#include "src/checkpoint/packed_manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "kernels/packed_matrix.h"

namespace moesaic {
namespace {

constexpr std::int64_t kVersion = 2;
/// No matrix of a model has as many rows or columns; the bytes of one with both fit 63 bits.
constexpr std::int64_t kMostRows = std::int64_t{1} << 30;

// --- writing ----------------------------------------------------------------------------------

std::string entry_text(const PackedEntry& entry) {
  JsonWriter out;
  out.field("name", entry.name).field("rows", entry.rows).field("depth", entry.depth);
  if (entry.plain) {
    out.field("dtype", dtype_name(*entry.plain));
  } else {
    out.field("format", format_name(entry.layout.format))
        .field("group", std::int64_t{entry.layout.group})
        .field("wide_scales", entry.layout.wide_scales)
        .field("scale", double{entry.scale})
        .field("order", entry.has_order);
    if (entry.input_scale != 0) out.field("input_scale", double{entry.input_scale});
  }
  return out.field("shard", entry.shard)
      .field("offset", entry.offset)
      .field("bytes", entry.bytes)
      .field("checksum", checksum_text(entry.checksum))
      .text();
}

std::string copy_text(const PackedFile& file) {
  return JsonWriter()
      .field("name", file.name)
      .field("bytes", file.bytes)
      .field("checksum", checksum_text(file.checksum))
      .text();
}

std::string shard_text(const PackedFile& file) {
  return JsonWriter().field("name", file.name).field("bytes", file.bytes).text();
}

/// A JSON array, an element a line.
template <typename Element>
std::string lines(const std::vector<Element>& elements, std::string (*text)(const Element&)) {
  std::string out;
  for (const Element& element : elements) {
    out += (out.empty() ? "\n" : ",\n") + text(element);
  }
  return "[" + out + "]";
}

// --- reading ----------------------------------------------------------------------------------

std::int64_t number(const Json& object, std::string_view key, std::int64_t least,
                    std::int64_t most) {
  const Json value = object.at(key);
  const std::int64_t number = value.as_int();
  require(number >= least && number <= most, ErrorKind::file, "{}: {} is not within {} and {}",
          value.where(), number, least, most);
  return number;
}

std::uint64_t read_checksum(const Json& object) {
  const Json value = object.at("checksum");
  const auto sum = checksum_from_text(value.as_string_view());
  require(sum.has_value(), ErrorKind::file, "{}: {} is no checksum of 16 hexadecimal digits",
          value.where(), json_quote(value.as_string_view()));
  return *sum;
}

/// Without a directory, but for that of `folder`.
PackedFile read_file_entry(const Json& object, std::string_view folder = {}) {
  const Json name = object.at("name");
  PackedFile file{.name = name.as_string(),
                  .bytes = number(object, "bytes", 0, std::int64_t{1} << 62)};
  std::string_view plain = file.name;
  const bool is_inside = !folder.empty() && plain.starts_with(std::string(folder) + "/");
  if (is_inside) plain.remove_prefix(folder.size() + 1);
  require(!plain.empty() && plain.find_first_of(std::string_view("/\0", 2)) == plain.npos,
          ErrorKind::file, "{}: {} is no plain file name", name.where(), json_quote(file.name));
  return file;
}

DType read_dtype(const Json& value) {
  const auto dtype = dtype_from_name(value.as_string_view());
  require(dtype == DType::bf16 || dtype == DType::f32, ErrorKind::file,
          "{}: {} is neither BF16 nor F32", value.where(), json_quote(value.as_string_view()));
  return *dtype;
}

float read_scale(const Json& value) {
  const double scale = value.as_double();
  require(std::abs(scale) <= std::numeric_limits<float>::max(), ErrorKind::file,
          "{}: {} is no finite float", value.where(), scale);
  return static_cast<float>(scale);
}

Layout read_layout(const Json& object) {
  const Json name = object.at("format");
  const auto format = format_from_name(name.as_string_view());
  require(format.has_value(), ErrorKind::file, "{}: unknown format {}", name.where(),
          json_quote(name.as_string_view()));
  const Layout layout{.format = *format,
                      .group = narrow<std::int32_t>(number(object, "group", 0, 1024)),
                      .wide_scales = object.at("wide_scales").as_bool()};
  require(layout_exists(layout), ErrorKind::file, "{}: no layout {} with a group of {}{}",
          object.where(), name.as_string_view(), layout.group,
          layout.wide_scales ? " and wide scales" : "");
  return layout;
}

PackedEntry read_entry(const Json& object, const std::vector<PackedFile>& shards) {
  PackedEntry entry;
  entry.name = object.at("name").as_string();
  entry.rows = number(object, "rows", 1, kMostRows);
  entry.depth = number(object, "depth", 1, kMostRows);
  if (const auto dtype = object.find("dtype")) {
    entry.plain = read_dtype(*dtype);
  } else {
    entry.layout = read_layout(object);
    entry.scale = read_scale(object.at("scale"));
    entry.has_order = object.at("order").as_bool();
    if (const auto scale = object.find("input_scale")) entry.input_scale = read_scale(*scale);
  }
  entry.shard = number(object, "shard", 0, std::ssize(shards) - 1);
  const PackedFile& shard = shards[static_cast<std::size_t>(entry.shard)];
  entry.bytes = number(object, "bytes", 0, shard.bytes);
  entry.offset = number(object, "offset", 0, shard.bytes - entry.bytes);
  entry.checksum = read_checksum(object);
  require(entry.offset % kPackedAlignment == 0, ErrorKind::file,
          "{}: offset {} is no multiple of {}", object.where(), entry.offset, kPackedAlignment);
  require(entry.bytes == entry.data_bytes(), ErrorKind::file,
          "{}: weight \"{}\" of {} x {} has {} bytes, not {}", object.where(), entry.name,
          entry.rows, entry.depth, entry.data_bytes(), entry.bytes);
  return entry;
}

/// What follows the line with the checksum, which must be its.
std::string_view checked_body(std::string_view text, const std::string& path) {
  constexpr std::string_view kBegin = "{\"checksum\": \"";
  constexpr std::string_view kEnd = "\",";
  const std::size_t line_end = text.find('\n');
  const std::string_view line = text.substr(0, line_end);
  require(line_end != std::string_view::npos && line.starts_with(kBegin) && line.ends_with(kEnd),
          ErrorKind::file, "{}: not a manifest that `moesaic convert` wrote", path);
  const std::string_view digits =
      line.substr(kBegin.size(), line.size() - kBegin.size() - kEnd.size());
  const std::string_view body = text.substr(line_end + 1);
  require(digits == checksum_text(checksum(body)), ErrorKind::file,
          "{}: altered or cut short: its checksum is {}, not {}", path,
          checksum_text(checksum(body)), digits);
  return body;
}

}  // namespace

std::int64_t PackedEntry::panels_bytes() const {
  if (plain) return rows * depth * dtype_bytes(*plain);
  return panel_count(rows) * panel_bytes(layout, depth);
}

std::int64_t PackedEntry::data_bytes() const {
  return panels_bytes() + (has_order ? depth * std::int64_t{sizeof(std::int32_t)} : 0);
}

std::int64_t PackedManifest::total_bytes() const noexcept {
  std::int64_t sum = 0;
  for (const PackedEntry& entry : entries) sum += entry.bytes;
  return sum;
}

void lay_out(PackedManifest& manifest, std::int64_t shard_bytes) {
  std::vector<std::int64_t> sizes;
  for (PackedEntry& entry : manifest.entries) {
    entry.bytes = entry.data_bytes();
    const std::int64_t padded = round_up(entry.bytes, kPackedAlignment);
    if (sizes.empty() || (sizes.back() > 0 && sizes.back() + padded > shard_bytes)) {
      sizes.push_back(0);
    }
    entry.shard = std::ssize(sizes) - 1;
    entry.offset = sizes.back();
    sizes.back() += padded;
  }
  manifest.shards.clear();
  for (const std::int64_t size : sizes) {
    manifest.shards.push_back(
        {.name = fmt::format("packed-{:05}-of-{:05}.bin", manifest.shards.size() + 1, sizes.size()),
         .bytes = size});
  }
}

std::string manifest_text(const PackedManifest& manifest) {
  const std::string body = fmt::format(
      "\"kind\": {}, \"version\": {}, \"expert_format\": {}, \"dense_format\": {}, "
      "\"head_format\": {},\n\"copies\": {},\n"
      "\"shards\": {},\n\"weights\": {}}}\n",
      json_quote(kManifestKind), kVersion, json_quote(manifest.formats.expert),
      json_quote(manifest.formats.dense), json_quote(manifest.formats.head),
      lines(manifest.copies, copy_text), lines(manifest.shards, shard_text),
      lines(manifest.entries, entry_text));
  return fmt::format("{{\"checksum\": \"{}\",\n{}", checksum_text(checksum(body)), body);
}

PackedManifest parse_manifest(std::string_view text, const std::string& path) {
  static_cast<void>(checked_body(text, path));
  const Json json = Json::parse(text, path);
  const Json kind = json.at("kind");
  require(kind.as_string_view() == kManifestKind, ErrorKind::file, "{}: {}, not \"{}\"",
          kind.where(), json_quote(kind.as_string_view()), kManifestKind);
  const std::int64_t version = json.at("version").as_int();
  require(version == kVersion, ErrorKind::file,
          "{}: version {}; this program reads version {}: convert the model again", path, version,
          kVersion);
  PackedManifest manifest;
  manifest.formats = {.expert = json.at("expert_format").as_string(),
                      .dense = json.at("dense_format").as_string(),
                      .head = json.at("head_format").as_string()};
  json.at("copies").for_each([&](const std::string&, const Json& object) {
    manifest.copies.push_back(read_file_entry(object, kTemplateFolder));
    manifest.copies.back().checksum = read_checksum(object);
  });
  json.at("shards").for_each([&](const std::string&, const Json& object) {
    manifest.shards.push_back(read_file_entry(object));
  });
  std::set<std::string> names;
  json.at("weights").for_each([&](const std::string&, const Json& object) {
    manifest.entries.push_back(read_entry(object, manifest.shards));
    require(names.insert(manifest.entries.back().name).second, ErrorKind::file,
            "{}: weight \"{}\" stands twice", object.where(), manifest.entries.back().name);
  });
  return manifest;
}

}  // namespace moesaic
