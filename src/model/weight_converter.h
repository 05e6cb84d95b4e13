#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/checkpoint/packed_writer.h"
#include "src/model/matrix_packer.h"
#include "src/model/weight_plan.h"

namespace moesaic {

/// The entry of a converted directory that holds this weight of a checkpoint: without place,
/// checksum and scale.
[[nodiscard]] PackedEntry describe_packed(const PlannedWeight& weight);
/// All entries, with their places in shards of so many bytes, but without checksums and scales,
/// which packing finds out.
[[nodiscard]] PackedManifest describe_packed(const std::vector<PlannedWeight>& weights,
                                             std::int64_t shard_bytes = kShardBytes);

/// Packs weights of a checkpoint into shards, some panels at a time; one object a thread.
class WeightConverter {
 public:
  explicit WeightConverter(const ShardWriter& shards) : shards_(&shards) {}

  /// Reads, packs and writes `weight`, and completes its entry. Throws Error{file} for values that
  /// cannot be packed, Error{resource} when the disk refuses.
  void convert(const PlannedWeight& weight, PackedEntry& entry);

 private:
  void convert_matrix(const PlannedWeight& weight, PackedEntry& entry);
  template <typename Element>
  void convert_rows(const PlannedWeight& weight, PackedEntry& entry);

  const ShardWriter* shards_;
  PackScratch scratch_;
  std::vector<std::byte> chunk_;
};

}  // namespace moesaic
