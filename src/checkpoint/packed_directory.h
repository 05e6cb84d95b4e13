#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/checkpoint/mapped_file.h"
#include "src/checkpoint/packed_manifest.h"
#include "src/checkpoint/safetensors.h"

namespace moesaic {

/// A directory that `moesaic convert` made: manifest.json, shards of packed weights, and copies of
/// the model's small files. Holds the mapped shards; opening reads the manifest only.
class PackedDirectory {
 public:
  /// Whether `directory` holds a manifest or shards of a converted model, whole or broken, and not
  /// a checkpoint.
  [[nodiscard]] static bool is_one(const std::string& directory);
  /// Throws Error{file} naming the file and what is wrong: no manifest, an altered one, one of
  /// another version; a shard that is missing or has another size.
  [[nodiscard]] static PackedDirectory open(const std::string& directory);

  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  [[nodiscard]] const PackedManifest& manifest() const noexcept { return manifest_; }
  /// Of the manifest, and so of everything.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }

  /// Throws Error{file} if there is no weight of this name.
  [[nodiscard]] const PackedEntry& at(std::string_view name) const;
  /// The mapped bytes of one of the manifest's entries, page-aligned.
  [[nodiscard]] std::span<const std::byte> bytes(const PackedEntry& entry) const noexcept;
  /// A weight of plain rows as a tensor [rows, depth].
  [[nodiscard]] TensorView tensor(const PackedEntry& entry) const;

  /// Throws Error{file} naming shard, weight and offset unless `bytes`, wherever they were copied
  /// to, are those that were written.
  void verify(const PackedEntry& entry, std::span<const std::byte> bytes) const;
  /// The same for one of the copied files.
  void verify_copy(const PackedFile& copy) const;
  /// For those that are there; with `all` also for those that nobody reads, which may have been
  /// taken away.
  void verify_copies(bool all) const;
  /// As MappedFile::require_read, for all shards.
  void require_read() const {
    for (const MappedFile& shard : shards_) shard.require_read();
  }
  /// As MappedFile::release_pages, for all shards.
  void release_pages() const noexcept {
    for (const MappedFile& shard : shards_) shard.release_pages();
  }

 private:
  PackedDirectory(std::string directory, PackedManifest manifest)
      : directory_(std::move(directory)), manifest_(std::move(manifest)) {}
  void map_shards();

  std::string directory_;
  PackedManifest manifest_;
  std::uint64_t fingerprint_ = 0;
  std::vector<MappedFile> shards_;
  std::unordered_map<std::string_view, const PackedEntry*> by_name_;
};

}  // namespace moesaic
