#include "src/checkpoint/packed_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/directory.h"
#include "base/error.h"
#include "base/small_file.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

/// Locked by the process that writes. It also tells that the directory is one of ours.
constexpr std::string_view kLockFile = "conversion.lock";

/// What is whole, of a conversion that goes on.
constexpr std::string_view kRecordFile = "conversion.jsonl";

/// What is in the place of a manifest where a conversion writes a directory of another kind.
constexpr std::string_view kMarkFile = "moesaic_conversion.json";
constexpr std::string_view kMark = "{\"kind\": \"made by moesaic convert\"}\n";

constexpr std::array<std::string_view, 13> kCopiedFiles = {
    "config.json",     "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json",  "vocab.json",
    "merges.txt",      "chat_template.jinja",     "chat_template.json", "LICENSE",
    "README.md"};

/// Without a separator at the end, so that a suffix can follow; where a link leads.
std::string plain_path(const std::string& directory) {
  fs::path path = directory;
  while (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  std::error_code error;
  const bool is_plain = path.filename() != "." && path.filename() != ".." &&
                        !fs::is_symlink(fs::symlink_status(path, error));
  if (is_plain) return path.string();
  const fs::path target = fs::canonical(path, error);
  require(!error, ErrorKind::usage, "{}: leads nowhere: {}", path.string(), error.message());
  return target.string();
}

std::string in(const std::string& directory, std::string_view file) {
  return (fs::path(directory) / file).string();
}

bool has_mark(const std::string& directory) {
  std::ifstream stream(in(directory, kMarkFile));
  std::string first;
  return std::getline(stream, first) && first + "\n" == kMark;
}

/// Whether a conversion, of whatever version, wrote the directory.
bool is_converted(const std::string& directory) {
  if (has_mark(directory)) return true;
  std::ifstream stream(in(directory, kManifestFile));
  std::string first;
  std::string second;
  return std::getline(stream, first) && std::getline(stream, second) &&
         second.find(kManifestKind) != std::string::npos;
}

/// Whether conversions write files of this name.
bool is_of_a_conversion(const std::string& name) {
  const bool is_known = name == kManifestFile || name == kMarkFile || name == kRecordFile ||
                        name == kLockFile || name == "adapter_config.json" ||
                        name == "model.safetensors.index.json";
  return is_known || std::ranges::find(kCopiedFiles, name) != kCopiedFiles.end() ||
         name.ends_with(".safetensors") || (name.starts_with("packed-") && name.ends_with(".bin"));
}

bool is_template(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_regular_file(error) && entry.path().extension() == ".jinja";
}

/// Whether conversions make such a thing.
bool is_of_a_conversion(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  if (!fs::is_directory(entry.symlink_status(error))) {
    return entry.is_regular_file(error) && is_of_a_conversion(name);
  }
  return name == kTemplateFolder &&
         std::ranges::all_of(entries_of(entry.path(), error), is_template);
}

/// Nothing of anybody else is in a directory that is going to be taken away.
void require_nothing_else(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : entries_of(directory, error)) {
    require(is_of_a_conversion(entry), ErrorKind::usage,
            "{}: was not made by moesaic convert, and --overwrite would take it away with all of "
            "{}: put it elsewhere",
            entry.path().string(), directory);
  }
}

bool is_mount_point(const std::string& directory) {
  struct statx facts {};
  return ::statx(AT_FDCWD, directory.c_str(), 0, 0, &facts) == 0 &&
         (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/// A directory that is whole gets the name of an empty one.
void require_replaceable(const std::string& directory) {
  std::error_code error;
  const char* const reason = is_mount_point(directory)               ? "a mount point"
                             : fs::equivalent(directory, ".", error) ? "the working directory"
                                                                     : nullptr;
  require(reason == nullptr, ErrorKind::usage,
          "{}: is {}, and so is not replaced by a directory that is whole: name one in it",
          directory, reason == nullptr ? "" : reason);
}

void require_free_or_converted(const std::string& directory, bool overwrite) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status)) return;
  require(fs::is_directory(status), ErrorKind::usage, "{}: is there, and is no directory",
          directory);
  require_replaceable(directory);
  if (fs::is_empty(directory, error)) return;
  require(overwrite, ErrorKind::usage,
          "{}: is there and not empty; --overwrite replaces what moesaic convert has made",
          directory);
  require(is_converted(directory), ErrorKind::usage,
          "{}: was not made by moesaic convert, and so is not replaced", directory);
  require_nothing_else(directory);
}

/// Templates of a model besides the usual one, by their names in its directory.
std::vector<std::string> template_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : entries_of(in(directory, kTemplateFolder), error)) {
    if (!is_template(entry)) continue;
    names.push_back((fs::path(kTemplateFolder) / entry.path().filename()).string());
  }
  std::ranges::sort(names);
  return names;
}

void write_whole(const std::string& path, std::string_view text) {
  OutputFile file(path, OutputFile::Mode::create);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
}

/// Takes away what an earlier version of a directory has been renamed to.
void remove_converted(const std::string& directory) {
  std::error_code error;
  if (is_converted(directory)) fs::remove_all(directory, error);
}

/// The name that what was there has for a moment, on a file system that cannot exchange names.
std::string old_directory(const std::string& part) {
  return part + ".old";
}

/// Gives `part` the name of `directory`, which is there, and returns what that is called now.
std::string swap_names(const std::string& part, const std::string& directory) {
  if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0) {
    return part;
  }
  const std::string old = old_directory(part);  // not at once
  remove_converted(old);                        // of a process that was killed just here
  const bool moved = std::rename(directory.c_str(), old.c_str()) == 0;
  if (moved && std::rename(part.c_str(), directory.c_str()) == 0) return old;
  const int reason = errno;
  if (moved) (void)std::rename(old.c_str(), directory.c_str());
  fail(ErrorKind::resource, "{}: cannot be replaced by {}: {}", directory, part,
       std::strerror(reason));
}

}  // namespace

std::string part_directory(const std::string& directory) {
  return plain_path(directory) + ".part";
}

PackedOutput::PackedOutput(const std::string& directory, bool overwrite, Found found)
    : directory_(plain_path(directory)), part_(part_directory(directory)), overwrite_(overwrite) {
  require_free_or_converted(directory_, overwrite_);
  const bool is_new = take_part_directory();
  if (found == Found::dropped) clear_part_directory({});
  spares_found_ = found == Found::kept && !is_new;
}

bool PackedOutput::take_part_directory() {
  std::error_code error;
  const bool is_new = fs::create_directory(part_, error);
  // One that was killed just after it had replaced a directory has left that here.
  const bool is_ours =
      !error && (file_exists(in(part_, kLockFile)) || (overwrite_ && is_converted(part_)));
  require(is_new || is_ours, ErrorKind::resource, "{}: cannot be made: {}", part_,
          error ? error.message() : "it is there, and not from a conversion");
  lock_ = Descriptor(::open(in(part_, kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  require(lock_.is_open(), ErrorKind::resource, "{}: cannot be written: {}", part_,
          std::strerror(errno));
  const bool in_use = ::flock(lock_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  require(!in_use, ErrorKind::usage, "{}: another process is converting to {}", part_, directory_);
  return is_new;
}

void PackedOutput::clear_part_directory(const std::set<std::string>& stays) const {
  std::error_code error;
  std::vector<fs::directory_entry> entries = entries_of(part_, error);
  std::erase_if(entries, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name == kLockFile || stays.contains(name);
  });
  for (const auto& entry : entries) {
    if (!error) fs::remove_all(entry.path(), error);
  }
  require(!error, ErrorKind::resource, "{}: cannot be emptied: {}", part_, error.message());
}

PackedOutput::~PackedOutput() {
  if (!published_ && !spares_found_) leave_kept();
}

void PackedOutput::leave_kept() const noexcept {
  std::error_code error;
  if (kept_.empty()) {
    fs::remove_all(part_, error);
    return;
  }
  try {
    std::set<std::string> stays = kept_;
    stays.emplace(kRecordFile);
    clear_part_directory(stays);
  } catch (const std::exception&) {  // then more is left than need be
  }
}

std::string PackedOutput::record_path() const {
  return in(part_, kRecordFile);
}

bool PackedOutput::has_shard(const PackedFile& shard) const {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(in(part_, shard.name), error);
  return !error && std::cmp_equal(bytes, shard.bytes);
}

void PackedOutput::copy_files(const std::string& model_directory, PackedManifest& manifest) const {
  const std::vector<std::string> templates = template_files(model_directory);
  std::error_code error;  // told by what is written into it
  if (!templates.empty()) fs::create_directory(in(part_, kTemplateFolder), error);
  const auto copy_file = [&](const std::string& name) {
    const MappedFile source(in(model_directory, name));
    OutputFile copy(in(part_, name), OutputFile::Mode::create);
    reading(source, [&] {
      // First: what cannot be read is then noticed here, not by the system as it writes.
      manifest.copies.push_back({.name = name,
                                 .bytes = std::ssize(source.bytes()),
                                 .checksum = checksum(source.bytes())});
      copy.write_at(0, source.bytes());
    });
    copy.sync();
  };
  for (const std::string_view name : kCopiedFiles) {
    if (file_exists(in(model_directory, name))) copy_file(std::string(name));
  }
  for (const std::string& name : templates) copy_file(name);
  if (!templates.empty()) sync_directory(in(part_, kTemplateFolder));
}

void PackedOutput::make_shards(const PackedManifest& manifest) {
  spares_found_ = false;
  std::set<std::string> stays = kept_;
  stays.emplace(kRecordFile);
  for (const PackedFile& copy : manifest.copies)
    stays.insert(fs::path(copy.name).begin()->string());
  clear_part_directory(stays);
  for (const PackedFile& shard : manifest.shards) {
    if (kept_.contains(shard.name)) continue;
    OutputFile(in(part_, shard.name), OutputFile::Mode::create).reserve(shard.bytes);
  }
}

void PackedOutput::publish(const PackedManifest& manifest) {
  write_whole(in(part_, kManifestFile), manifest_text(manifest));
  take_own_name();
}

void PackedOutput::publish() {
  write_whole(in(part_, kMarkFile), kMark);
  take_own_name();
}

void PackedOutput::take_own_name() {
  sync_directory(part_);
  const std::string replaced = take_name();
  published_ = true;
  sync_name(directory_);
  // Only now: without its name, the next conversion needs both.
  std::error_code error;
  fs::remove(in(directory_, kRecordFile), error);
  fs::remove(in(directory_, kLockFile), error);
  if (!replaced.empty()) fs::remove_all(replaced, error);
  remove_converted(old_directory(part_));
}

std::string PackedOutput::take_name() const {
  if (std::rename(part_.c_str(), directory_.c_str()) == 0) return "";
  const int reason = errno;
  require_free_or_converted(directory_, overwrite_);
  std::error_code error;
  require(fs::exists(fs::symlink_status(directory_, error)), ErrorKind::resource,
          "{}: cannot get the name {}: {}", part_, directory_, std::strerror(reason));
  return swap_names(part_, directory_);
}

ShardWriter::ShardWriter(const std::string& directory, const PackedManifest& manifest) {
  for (const PackedFile& shard : manifest.shards) {
    shards_.emplace_back(in(part_directory(directory), shard.name), OutputFile::Mode::existing);
  }
}

void ShardWriter::write(const PackedEntry& entry, std::int64_t offset,
                        std::span<const std::byte> bytes) const {
  shards_[static_cast<std::size_t>(entry.shard)].write_at(entry.offset + offset, bytes);
}

}  // namespace moesaic
