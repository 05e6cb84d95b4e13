#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/format.h"

namespace moesaic {

/// The file of a converted directory that says what the others hold.
inline constexpr std::string_view kManifestFile = "manifest.json";
/// Templates of conversations besides the usual one: the only directory in a converted one.
inline constexpr std::string_view kTemplateFolder = "additional_chat_templates";
/// What it says that the directory is.
inline constexpr std::string_view kManifestKind = "moesaic packed model";
/// Entries start at multiples of this in their shard: a page is of one entry, so that ranks of
/// several nodes can write to one file.
inline constexpr std::int64_t kPackedAlignment = 4096;
/// Shards are filled up to this; an entry is never cut.
inline constexpr std::int64_t kShardBytes = std::int64_t{4} << 30;

/// One weight of a converted model: a packed matrix (its panels, then PackedMatrix::order if it has
/// one), or plain rows (embedding, vectors). The same bytes on every machine.
struct PackedEntry {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t depth = 0;
  std::optional<DType> plain;  // bf16 or f32 rows; else packed as follows
  Layout layout{};
  float scale = 1;        // PackedMatrix::scale
  float input_scale = 0;  // of activations in nvfp4, as the checkpoint had it; 0: it had none
  bool has_order = false;

  std::int64_t shard = 0;   // index
  std::int64_t offset = 0;  // in the shard
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // of the bytes

  /// Bytes of the panels, where the order begins.
  [[nodiscard]] std::int64_t panels_bytes() const;
  /// Bytes of everything.
  [[nodiscard]] std::int64_t data_bytes() const;
};

/// A file of a converted directory.
struct PackedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // copied files only
};

/// The formats that a conversion was asked for, or "auto".
struct PackedFormats {
  std::string expert;
  std::string dense;
  std::string head;
};

struct PackedManifest {
  PackedFormats formats;
  std::vector<PackedFile> copies;  // config.json, tokenizer.json, ...
  std::vector<PackedFile> shards;
  std::vector<PackedEntry> entries;

  [[nodiscard]] std::int64_t total_bytes() const noexcept;
};

/// Gives every entry its bytes and its place, in the order of the entries, and names the shards.
void lay_out(PackedManifest& manifest, std::int64_t shard_bytes = kShardBytes);

/// The text of manifest.json. Its first line is the checksum of the rest.
[[nodiscard]] std::string manifest_text(const PackedManifest& manifest);

/// Inverse of manifest_text. Throws Error{file} naming `path` and the field if the text was altered
/// or cut, is of another version, or says what cannot be.
[[nodiscard]] PackedManifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace moesaic
