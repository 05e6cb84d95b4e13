#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/output_file.h"
#include "src/checkpoint/packed_manifest.h"

namespace moesaic {

/// The directory of a conversion, made by one process, where a link leads that OUTDIR may be. It
/// has the name OUTDIR.part until publish() gives it its own, whole; one that is destroyed before
/// leaves nothing behind but what is to be kept. What a killed process left under that name is
/// taken away by the next, or goes on.
class PackedOutput {
 public:
  /// What becomes of a stopped conversion that is there.
  enum class Found {
    dropped,  ///< it is taken away at once
    kept      ///< all of it stays until make_shards(), also if this one fails before
  };

  /// Throws Error{usage} if `directory` is there and not empty, unless it was made by a conversion
  /// and is to be overwritten, if it is a mount point or the working directory, or if another
  /// process is just writing it; Error{resource} if it cannot be made.
  PackedOutput(const std::string& directory, bool overwrite, Found found = Found::dropped);
  ~PackedOutput();
  PackedOutput(const PackedOutput&) = delete;
  PackedOutput& operator=(const PackedOutput&) = delete;

  /// Copies the small files of a model's directory that belong to a converted one too, and names
  /// them in `manifest`.
  void copy_files(const std::string& model_directory, PackedManifest& manifest) const;
  /// Where it is told what is to be kept, which is the caller's business.
  [[nodiscard]] std::string record_path() const;
  /// Whether a shard is there with all its bytes.
  [[nodiscard]] bool has_shard(const PackedFile& shard) const;
  /// The shard stays for the next conversion, with the record, if this one comes to no end.
  void keep(const PackedFile& shard) { kept_.insert(shard.name); }
  /// Makes the shards that are not kept, with all their space. What was found and is not kept is
  /// taken away now.
  void make_shards(const PackedManifest& manifest);
  /// Writes the manifest and makes the directory appear under its name. Throws Error{usage} if
  /// something else has got that name meanwhile: what is kept stays then too.
  void publish(const PackedManifest& manifest);
  /// The same for a directory of another kind, that holds what it should: moesaic_conversion.json
  /// in it tells who made it, where there is no manifest.
  void publish();

 private:
  /// Whether it was not there.
  bool take_part_directory();
  /// Takes away all but the lock, and of the rest what `stays`.
  void clear_part_directory(const std::set<std::string>& stays) const;
  /// Makes the directory, which is whole, appear under its name.
  void take_own_name();
  /// Gives the directory its own name, and returns what another one of that name is called now.
  [[nodiscard]] std::string take_name() const;
  /// Takes away all but what is kept.
  void leave_kept() const noexcept;

  std::string directory_;
  std::string part_;
  bool overwrite_;
  Descriptor lock_;  // held as long as the process lives
  bool published_ = false;
  bool spares_found_ = false;   // nobody has said yet what is kept of what was found
  std::set<std::string> kept_;  // names of shards
};

/// Where a conversion to `directory` is written until it is whole.
[[nodiscard]] std::string part_directory(const std::string& directory);

/// Writes weights into the shards that a PackedOutput has made; one object a process.
class ShardWriter {
 public:
  /// Opens the shards of a conversion to `directory`. Throws Error{resource}, also where ranks do
  /// not see the same files.
  ShardWriter(const std::string& directory, const PackedManifest& manifest);

  /// `bytes` from `offset` on of the entry's. For any number of threads.
  void write(const PackedEntry& entry, std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Returns when what this process wrote to the shard is on the disk.
  void sync(std::int64_t shard) const { shards_[static_cast<std::size_t>(shard)].sync(); }

 private:
  std::vector<OutputFile> shards_;
};

}  // namespace moesaic
