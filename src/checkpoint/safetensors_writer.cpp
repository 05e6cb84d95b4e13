#include "src/checkpoint/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"

namespace moesaic {
namespace {

std::int64_t bytes_of(const TensorSpec& spec) {
  std::int64_t bytes = dtype_bytes(spec.dtype);
  for (const std::int64_t size : spec.shape) {
    require(size >= 0 && !__builtin_mul_overflow(bytes, size, &bytes), ErrorKind::internal,
            "tensor \"{}\" cannot have shape [{}]", spec.name, fmt::join(spec.shape, ", "));
  }
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> tensors)
    : path_(std::move(path)) {
  lay_out(std::move(tensors));
  const std::string header = header_text();
  const auto header_bytes = static_cast<std::int64_t>(header.size());
  std::int64_t file_bytes = header_bytes;
  for (Place& place : places_) {
    place.begin_byte += header_bytes;
    file_bytes += place.size_bytes;
  }
  file_ = std::make_unique<ReplacingFile>(path_);
  file_->file().reserve(file_bytes);
  file_->file().write_at(0, std::as_bytes(std::span(header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

/// Widest elements first, then by name, so that every tensor is aligned to its element.
void SafetensorsWriter::lay_out(std::vector<TensorSpec> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return std::pair(-dtype_bytes(a.dtype), std::string_view(a.name)) <
           std::pair(-dtype_bytes(b.dtype), std::string_view(b.name));
  });
  std::int64_t offset = 0;
  for (TensorSpec& spec : tensors) {
    const std::int64_t bytes = bytes_of(spec);
    require(by_name_.emplace(spec.name, places_.size()).second, ErrorKind::internal,
            "tensor \"{}\" is declared twice", spec.name);
    places_.push_back({std::move(spec), offset, bytes, 0});
    require(!__builtin_add_overflow(offset, bytes, &offset), ErrorKind::internal,
            "{}: the tensors are absurdly large", path_);
  }
}

/// The length and the JSON, padded with spaces so that the data is 8-byte aligned.
std::string SafetensorsWriter::header_text() const {
  JsonWriter header;
  header.raw_field("__metadata__", R"({"format": "pt"})");
  for (const Place& place : places_) {
    JsonWriter entry;
    entry.field("dtype", dtype_name(place.spec.dtype))
        .raw_field("shape", fmt::format("[{}]", fmt::join(place.spec.shape, ", ")))
        .raw_field("data_offsets",
                   fmt::format("[{}, {}]", place.begin_byte, place.begin_byte + place.size_bytes));
    header.raw_field(place.spec.name, entry.text());
  }
  std::string json = header.text();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) {
    text += static_cast<char>(static_cast<unsigned char>(json.size() >> (8 * i)));
  }
  return text + json;
}

void SafetensorsWriter::write(std::string_view tensor, std::int64_t byte_offset,
                              std::span<const std::byte> bytes) {
  const auto found = by_name_.find(std::string(tensor));
  require(found != by_name_.end(), ErrorKind::internal, "{}: tensor \"{}\" was not declared", path_,
          tensor);
  Place* const place = &places_[found->second];
  const auto count = static_cast<std::int64_t>(bytes.size());
  require(
      byte_offset >= 0 && count <= place->size_bytes && byte_offset <= place->size_bytes - count,
      ErrorKind::internal, "{}: {} bytes at byte {} do not fit tensor \"{}\" of {} bytes", path_,
      count, byte_offset, tensor, place->size_bytes);
  file_->file().write_at(place->begin_byte + byte_offset, bytes);
  place->written_bytes += count;
}

void SafetensorsWriter::finish() {
  for (const Place& place : places_) {
    require(place.written_bytes == place.size_bytes, ErrorKind::internal,
            "{}: {} of the {} bytes of tensor \"{}\" were written", path_, place.written_bytes,
            place.size_bytes, place.spec.name);
  }
  file_->publish();
}

}  // namespace moesaic
