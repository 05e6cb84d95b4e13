#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "launch/options/options.h"

namespace moesaic {

/// Throws Error{usage} if OUTDIR is not named, is none of `moesaic sft`, is there and neither
/// --resume nor --overwrite is, is where --lora reads or in a checkpoint of another run, or if
/// something of the user has the name of a checkpoint, or --overwrite would meet it in one. For
/// rank 0, before anything is loaded.
void check_output(const Options& options);

/// Throws Error{usage} if the file of this option would be written over one that a run makes in
/// `directory`, or be lost with a checkpoint. "": there is none.
void require_apart_from_run(std::string_view option, const std::string& path,
                            const std::string& directory);

/// OUTDIR of rank 0, new or old. As long as this lives, no other process trains into it. A new one
/// in which nothing has been written is not left behind.
class OutputDirectory {
 public:
  /// Throws what check_output does; Error{usage} if another process trains into it;
  /// Error{resource} if it cannot be made, also where the directory that it is to be in is not
  /// there.
  explicit OutputDirectory(const Options& options);
  ~OutputDirectory();
  /// Without --resume: what an earlier run made there is removed, and nothing else; nothing at all,
  /// and throws Error{resource}, if the disk would not even then have room for `bytes`.
  void begin(const Options& options, std::int64_t bytes);
  /// Removes the adapter that an earlier run has left, or an earlier part of this one, if the
  /// checkpoint has the same; whether none is left. Throws Error{resource} if it cannot be removed.
  bool remove_adapter_of(const std::string& checkpoint) const;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

 private:
  std::string path_;
  Descriptor descriptor_;  // locked
  bool is_new_ = false;
};

/// OUTDIR/options.ini, which --config reads: the options of the run, whether it has begun or gone
/// on (--overwrite, --resume), which the file does not say.
/// Throws Error{resource} naming it.
void write_options(const Command& command);

/// Those of `names` that had other values when OUTDIR/options.ini was written: "--lr 0.1, not 0.2;
/// --seed 1, not 2", the former first. Empty if there is none; nothing where the file cannot tell.
[[nodiscard]] std::optional<std::string> changed_options(const Command& command,
                                                         std::span<const std::string_view> names);

}  // namespace moesaic
