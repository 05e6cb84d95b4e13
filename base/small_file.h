#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moesaic {

/// A config.json or generation_config.json has some KiB.
inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
/// Files that list tokens or tensors: those of the largest models have a quarter of it.
inline constexpr std::int64_t kMaxListBytes = std::int64_t{128} << 20;

/// What may stand at the beginning of a text in UTF-8, and is no part of it.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Whether there is something of this name. Throws Error{file} naming it where the system does not
/// tell: in a directory that may not be searched, behind links that lead in a circle.
[[nodiscard]] bool file_exists(const std::string& path);

/// All of a regular file. Throws Error{file} naming it if it is missing, is no regular file (a pipe
/// would never end), has more than `max_bytes`, or cannot be read.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t max_bytes);

/// What the beginning of a file shows that it is, in place of what its name says: what downloads
/// leave when they go wrong, and forms of weights that are not read. "a Git LFS pointer, ...: what
/// to do"; empty if it shows nothing of this kind.
[[nodiscard]] std::string_view mistaken_for(std::string_view beginning) noexcept;

}  // namespace moesaic
