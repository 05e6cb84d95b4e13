#include "src/model/weight_converter.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

/// Bytes of a weight that are packed, added to its checksum and written together: they stay in a
/// core's cache.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

/// Writes an entry from its beginning on.
class EntryStream {
 public:
  EntryStream(const ShardWriter& shards, const PackedEntry& entry)
      : shards_(shards), entry_(entry) {}

  void write(std::span<const std::byte> bytes) {
    shards_.write(entry_, offset_, bytes);
    sum_.add(bytes);
    offset_ += std::ssize(bytes);
  }
  [[nodiscard]] std::uint64_t checksum() const {
    require(offset_ == entry_.bytes, ErrorKind::internal, "weight \"{}\" has {} bytes, not {}",
            entry_.name, offset_, entry_.bytes);
    return sum_.value();
  }

 private:
  const ShardWriter& shards_;
  const PackedEntry& entry_;
  std::int64_t offset_ = 0;
  Checksum sum_;
};

}  // namespace

PackedEntry describe_packed(const PlannedWeight& weight) {
  PackedEntry entry;
  entry.name = weight.name;
  if (weight.matrix != nullptr) {
    const MatrixPacker packer(weight.packing, weight.parts);
    entry.rows = packer.rows();
    entry.depth = packer.depth();
    entry.layout = weight.packing.layout;
    entry.has_order = !packer.order().empty();
    entry.input_scale = weight.input_scale;
  } else if (weight.vector != nullptr) {
    entry.rows = 1;
    for (const MatrixSource& part : weight.parts) entry.depth += part.rows() * part.cols();
    entry.plain = DType::f32;
  } else {
    const MatrixSource& rows = weight.parts.front();
    entry.rows = rows.rows();
    entry.depth = rows.cols();
    entry.plain = rows.layout().format == Format::bf16 ? DType::bf16 : DType::f32;
  }
  entry.bytes = entry.data_bytes();
  return entry;
}

PackedManifest describe_packed(const std::vector<PlannedWeight>& weights,
                               std::int64_t shard_bytes) {
  PackedManifest manifest;
  for (const PlannedWeight& weight : weights) manifest.entries.push_back(describe_packed(weight));
  lay_out(manifest, shard_bytes);
  return manifest;
}

void WeightConverter::convert(const PlannedWeight& weight, PackedEntry& entry) {
  if (weight.matrix != nullptr) {
    convert_matrix(weight, entry);
  } else if (entry.plain == DType::bf16) {
    convert_rows<BFloat16>(weight, entry);
  } else {
    convert_rows<float>(weight, entry);
  }
}

void WeightConverter::convert_matrix(const PlannedWeight& weight, PackedEntry& entry) {
  MatrixPacker packer(weight.packing, weight.parts);
  const std::int64_t panels = packer.num_panels();
  naming_weight(entry.name, [&] {
    if (packer.must_measure()) packer.measure(0, panels, scratch_);
  });
  const std::int64_t stride = panel_bytes(entry.layout, entry.depth);
  const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / stride);
  EntryStream out(*shards_, entry);
  for (std::int64_t first = 0; first < panels; first += step) {
    const std::int64_t end = std::min(panels, first + step);
    packer.for_each_source(end, std::min(panels, end + step), prefetch);
    chunk_.resize(static_cast<std::size_t>((end - first) * stride));
    naming_weight(entry.name, [&] { packer.pack(first, end, chunk_.data(), scratch_); });
    out.write(chunk_);
    packer.for_each_source(first, end, release);  // read once: no reason to stay in memory
  }
  out.write(std::as_bytes(packer.order()));
  entry.checksum = out.checksum();
  entry.scale = packer.scale();
  require(std::isfinite(entry.scale), ErrorKind::file, "weight \"{}\" has a scale of {}",
          entry.name, entry.scale);
}

/// Vectors and the embedding.
template <typename Element>
void WeightConverter::convert_rows(const PlannedWeight& weight, PackedEntry& entry) {
  EntryStream out(*shards_, entry);
  for (const MatrixSource& part : weight.parts) {
    const std::int64_t row_bytes = part.cols() * std::int64_t{sizeof(Element)};
    const std::int64_t step = std::max<std::int64_t>(1, kPieceBytes / row_bytes);
    for (std::int64_t first = 0; first < part.rows(); first += step) {
      const std::int64_t count = std::min(step, part.rows() - first);
      chunk_.resize(static_cast<std::size_t>(count * row_bytes));
      part.read_rows(first, count,
                     std::span(reinterpret_cast<Element*>(chunk_.data()),
                               static_cast<std::size_t>(count * part.cols())));
      out.write(chunk_);
    }
  }
  entry.checksum = out.checksum();
}

}  // namespace moesaic
