#include "src/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

constexpr std::int64_t kLengthBytes = 8;

/// A tensor as the header describes it. Offsets count from the end of the header.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::int64_t read_index(const Json& value) {
  const bool whole = value.is_integer() && value.as_int() >= 0;
  require(whole, ErrorKind::file, "{}: expected an integer of at least 0, found {}", value.where(),
          value.is_number() ? fmt::format("{}", value.as_double()) : "no number");
  return value.as_int();
}

/// Bytes of a tensor of this shape; nothing if they do not fit 63 bits.
std::optional<std::int64_t> checked_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

Entry read_entry(const std::string& name, const Json& value, const std::string& path) {
  Entry entry;
  entry.name = name;
  const std::string dtype = value.at("dtype").as_string();
  const auto known = dtype_from_name(dtype);
  require(known.has_value(), ErrorKind::file, "{}: tensor \"{}\" has unknown dtype \"{}\"", path,
          name, dtype);
  entry.dtype = *known;
  const Json shape = value.at("shape");
  for (std::int64_t i = 0; i < shape.size(); ++i) entry.shape.push_back(read_index(shape.at(i)));

  const Json offsets = value.at("data_offsets");
  require(offsets.size() == 2, ErrorKind::file, "{}: expected [begin, end], found {} numbers",
          offsets.where(), offsets.size());
  entry.begin = read_index(offsets.at(std::int64_t{0}));
  entry.end = read_index(offsets.at(std::int64_t{1}));
  require(entry.begin <= entry.end, ErrorKind::file,
          "{}: tensor \"{}\" begins at byte {}, behind its end at {}", path, name, entry.begin,
          entry.end);

  const auto bytes = checked_bytes(entry.shape, entry.dtype);
  require(bytes.has_value(), ErrorKind::file, "{}: tensor \"{}\" of shape {} is absurdly large",
          path, name, format_shape(entry.shape));
  require(*bytes == entry.end - entry.begin, ErrorKind::file,
          "{}: tensor \"{}\", {} {}, has {} bytes, but its data_offsets [{}, {}] span {}", path,
          name, dtype, format_shape(entry.shape), *bytes, entry.begin, entry.end,
          entry.end - entry.begin);
  return entry;
}

void check_metadata(const Json& metadata) {
  require(metadata.is_object(), ErrorKind::file, "{}: expected an object of strings",
          metadata.where());
  metadata.for_each([](const std::string&, const Json& value) { (void)value.as_string_view(); });
}

/// Entries in the order of their data, which they must tile without holes.
std::vector<Entry> read_entries(std::string_view header, const std::string& path) {
  const Json json = Json::parse(header, path);
  require(json.is_object(), ErrorKind::file, "{}: the header is no JSON object", path);
  std::vector<Entry> entries;
  json.for_each([&](const std::string& name, const Json& value) {
    if (name == "__metadata__") {
      check_metadata(value);
    } else {
      entries.push_back(read_entry(name, value, path));
    }
  });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t covered = 0;
  for (const Entry& entry : entries) {
    require(entry.begin >= covered, ErrorKind::file,
            "{}: tensor \"{}\" begins at byte {} of the data, inside the tensor before it, which "
            "ends at {}",
            path, entry.name, entry.begin, covered);
    require(entry.begin == covered, ErrorKind::file,
            "{}: bytes {} to {} of the data, before tensor \"{}\", belong to no tensor", path,
            covered, entry.begin, entry.name);
    covered = entry.end;
  }
  return entries;
}

std::uint64_t read_u64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

/// Throws for what is no safetensors file at all, and says what it is.
void require_no_mistake(std::span<const std::byte> bytes, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 64));
  // Where a header begins, its length stands before it, which may look like another kind's mark.
  if (text.size() > 8 && text[8] == '{') return;
  const std::string_view other = mistaken_for(text);
  require(other.empty(), ErrorKind::file, "{}: {}", path, other);
  // The length of a header has zeros among its eight bytes.
  const bool is_text = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  require(!is_text, ErrorKind::file,
          "{}: a text, not weights, which begins {}: the download stored an answer of the server",
          path, json_quote(text));
}

/// The JSON text of the header.
std::string_view header_of(std::span<const std::byte> bytes, const std::string& path) {
  require(bytes.size() >= kLengthBytes, ErrorKind::file,
          "{}: no safetensors file: {} bytes, the header's length alone has 8", path, bytes.size());
  require_no_mistake(bytes, path);
  const std::uint64_t length = read_u64(bytes);
  require(length <= kMaxSafetensorsHeaderBytes, ErrorKind::file,
          "{}: no safetensors file, or a damaged one: header of {} bytes, at most {} are accepted",
          path, length, kMaxSafetensorsHeaderBytes);
  require(length <= bytes.size() - kLengthBytes, ErrorKind::file,
          "{}: cut short: {} bytes, the header alone ends at byte {}", path, bytes.size(),
          length + kLengthBytes);
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
          static_cast<std::size_t>(length)};
}

}  // namespace

std::string format_shape(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes,
                                          const std::string& path) {
  const std::string_view header = header_of(bytes, path);
  std::vector<Entry> entries = read_entries(header, path);

  const auto data = bytes.subspan(kLengthBytes + header.size());
  const auto found_bytes = static_cast<std::int64_t>(data.size());
  const std::int64_t data_bytes = entries.empty() ? 0 : entries.back().end;
  require(found_bytes >= data_bytes, ErrorKind::file, "{}: cut short: {} of {} bytes", path,
          bytes.size(), bytes.size() + static_cast<std::uint64_t>(data_bytes - found_bytes));
  require(found_bytes == data_bytes, ErrorKind::file,
          "{}: {} bytes at the end belong to no tensor: {} bytes were expected, {} are there", path,
          found_bytes - data_bytes,
          bytes.size() - static_cast<std::size_t>(found_bytes - data_bytes), bytes.size());

  std::vector<TensorView> tensors;
  tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    const auto size = static_cast<std::size_t>(entry.end - entry.begin);
    tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                       data.subspan(static_cast<std::size_t>(entry.begin), size), path});
  }
  return tensors;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  MappedFile file(path);
  auto tensors = reading(file, [&] { return parse_safetensors(file.bytes(), path); });
  return {std::move(file), std::move(tensors)};
}

const TensorView* SafetensorsFile::find(std::string_view name) const noexcept {
  for (const TensorView& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace moesaic
