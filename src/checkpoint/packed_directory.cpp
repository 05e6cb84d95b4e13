#include "src/checkpoint/packed_directory.h"

#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/directory.h"
#include "base/error.h"
#include "base/small_file.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

std::string path_in(const std::string& directory, std::string_view file) {
  return (fs::path(directory) / file).string();
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

bool PackedDirectory::is_one(const std::string& directory) {
  bool packed = false;
  std::error_code error;
  for (const auto& entry : entries_of(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "model.safetensors" || name == "model.safetensors.index.json") return false;
    packed |= name == kManifestFile || (name.starts_with("packed-") && name.ends_with(".bin"));
  }
  return packed;
}

PackedDirectory PackedDirectory::open(const std::string& directory) {
  const std::string path = path_in(directory, kManifestFile);
  require(file_exists(path), ErrorKind::file,
          "{}: packed weights without {}: the directory was not copied as a whole", directory,
          kManifestFile);
  const MappedFile file(path);
  PackedDirectory packed(directory,
                         reading(file, [&] { return parse_manifest(text_of(file), path); }));
  packed.fingerprint_ = reading(file, [&] { return checksum(file.bytes()); });
  packed.map_shards();
  for (const PackedEntry& entry : packed.manifest_.entries) {
    packed.by_name_.emplace(entry.name, &entry);
  }
  return packed;
}

void PackedDirectory::map_shards() {
  for (const PackedFile& shard : manifest_.shards) {
    const MappedFile& file = shards_.emplace_back(path_in(directory_, shard.name));
    require(std::cmp_equal(file.bytes().size(), shard.bytes), ErrorKind::file,
            "{}: {} bytes, {} says {}: altered or cut short", file.path(), file.bytes().size(),
            kManifestFile, shard.bytes);
  }
}

const PackedEntry& PackedDirectory::at(std::string_view name) const {
  const auto found = by_name_.find(name);
  require(found != by_name_.end(), ErrorKind::file,
          "{}: weight \"{}\" is missing; config.json may be another model's",
          path_in(directory_, kManifestFile), name);
  return *found->second;
}

std::span<const std::byte> PackedDirectory::bytes(const PackedEntry& entry) const noexcept {
  return shards_[static_cast<std::size_t>(entry.shard)].bytes().subspan(
      static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.bytes));
}

TensorView PackedDirectory::tensor(const PackedEntry& entry) const {
  const std::string& file = shards_[static_cast<std::size_t>(entry.shard)].path();
  require(entry.plain.has_value(), ErrorKind::file, "{}: weight \"{}\" is packed, not plain rows",
          file, entry.name);
  return {.name = entry.name,
          .dtype = *entry.plain,
          .shape = {entry.rows, entry.depth},
          .bytes = bytes(entry),
          .file = file};
}

void PackedDirectory::verify(const PackedEntry& entry, std::span<const std::byte> bytes) const {
  const std::uint64_t found = checksum(bytes);
  require(found == entry.checksum, ErrorKind::file,
          "{}: weight \"{}\" (bytes {} to {}) was altered: its checksum is {}, {} says {}",
          shards_[static_cast<std::size_t>(entry.shard)].path(), entry.name, entry.offset,
          entry.offset + entry.bytes, checksum_text(found), kManifestFile,
          checksum_text(entry.checksum));
}

void PackedDirectory::verify_copy(const PackedFile& copy) const {
  const MappedFile file(path_in(directory_, copy.name));
  const std::uint64_t found = reading(file, [&] { return checksum(file.bytes()); });
  require(std::cmp_equal(file.bytes().size(), copy.bytes) && found == copy.checksum,
          ErrorKind::file,
          "{}: altered since the model was converted; alter the checkpoint, and convert it again",
          file.path());
}

void PackedDirectory::verify_copies(bool all) const {
  for (const PackedFile& copy : manifest_.copies) {
    if (all || file_exists(path_in(directory_, copy.name))) verify_copy(copy);
  }
}

}  // namespace moesaic
