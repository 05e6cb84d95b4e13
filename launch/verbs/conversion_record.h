#pragma once

#include <cstdint>
#include <string>

#include "launch/verbs/record_file.h"
#include "src/checkpoint/packed_manifest.h"

namespace moesaic {

/// Which shards of a conversion are whole, in their order: a record a shard, with what packing has
/// found out about its entries (docs/formats.md).
class ConversionRecord {
 public:
  /// Reads what is there into `manifest`, which must outlive this and be laid out. A file of
  /// another conversion is replaced. Throws as RecordFile else.
  ConversionRecord(const std::string& path, const RunIdentity& identity, PackedManifest& manifest);

  /// How many are whole.
  [[nodiscard]] std::int64_t whole() const noexcept { return whole_; }
  /// The next one is.
  void add();
  /// None are.
  void clear();

 private:
  void note(const Json& record);

  PackedManifest& manifest_;
  std::int64_t whole_ = 0;
  RecordFile file_;
};

}  // namespace moesaic
