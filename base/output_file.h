#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// A file that is written at given places. Move-only; the destructor closes it.
class OutputFile {
 public:
  enum class Mode {
    create,    ///< made, or emptied
    existing,  ///< made by another process
    kept       ///< made if it is not there, else as it is
  };

  OutputFile() = default;
  /// `shown` stands in messages instead of `path`. Throws Error{resource} naming it if the file
  /// cannot be opened, and for a pipe or a terminal, which have no places; a file that is kept is a
  /// regular one.
  OutputFile(const std::string& path, Mode mode, std::string shown);
  OutputFile(const std::string& path, Mode mode) : OutputFile(path, mode, path) {}
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  /// Makes the file `bytes` long and takes the space at once, so that a full disk shows now and not
  /// after hours of work. File systems that cannot reserve get a sparse file. Throws
  /// Error{resource}.
  void reserve(std::int64_t bytes);
  /// Throws Error{resource} when the disk refuses. For any number of threads. Waits for the disk
  /// now and then, so that sync(), for which other ranks may wait, never has much left.
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Makes the file so long: what is beyond is dropped. Throws Error{resource}.
  void resize(std::int64_t bytes) const;
  /// Takes the file for this process, as long as this lives; false if another process has it. File
  /// systems that cannot lock say true.
  [[nodiscard]] bool lock() const noexcept;
  /// The same, and waits while another process has it.
  void wait_for_lock() const noexcept;
  /// Whether `path` still names this file: others may have renamed or removed it.
  [[nodiscard]] bool is_at(const std::string& path) const noexcept;
  /// Returns when what was written is on the disk. Throws Error{resource}.
  void sync() const;

 private:
  [[noreturn]] void refused(std::string_view what) const;

  std::string shown_;
  int descriptor_ = -1;
  mutable std::atomic<std::int64_t> unsynced_bytes_ = 0;
};

/// A file that is written beside `path` and takes that name in publish(): whoever opens it finds
/// the old file, if there was one, or the new one whole, also after a crash. One that is destroyed
/// before leaves nothing behind.
class ReplacingFile {
 public:
  /// Throws Error{resource} naming `path`, as all that follows, if it cannot be written, also where
  /// it is no regular file.
  explicit ReplacingFile(const std::string& path);
  ~ReplacingFile();
  ReplacingFile(const ReplacingFile&) = delete;
  ReplacingFile& operator=(const ReplacingFile&) = delete;

  [[nodiscard]] OutputFile& file() noexcept { return file_; }
  void publish();

 private:
  std::string path_;
  std::string part_;
  OutputFile file_;
  bool published_ = false;
};

/// The name that a ReplacingFile of this name was to take: NAME of NAME.part-123; empty for others.
[[nodiscard]] std::string_view name_of_part(std::string_view name) noexcept;

/// Puts `text` in the place of the file `path`, as a ReplacingFile.
void replace_file(const std::string& path, std::string_view text);

/// Throws what replace_file would, and changes nothing: for what is written after hours of work.
void require_replaceable(const std::string& path);

/// Throws Error{resource} naming `directory` and `what` unless files of these sizes find room in
/// it, all at once: they are reserved for a moment. For the same.
void require_room(const std::string& directory, std::span<const std::int64_t> file_bytes,
                  std::string_view what);

/// Makes changes of names in a directory last. A hint: never fails.
void sync_directory(const std::string& path) noexcept;
/// The same for the directory that this name stands in.
void sync_name(const std::string& path) noexcept;

}  // namespace moesaic
