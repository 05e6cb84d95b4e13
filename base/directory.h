#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace moesaic {

/// What is in a directory, in the system's order. `error` says why that is not all, and is cleared
/// where it is; std::filesystem's iterators throw when they advance, whatever they are given.
[[nodiscard]] std::vector<std::filesystem::directory_entry> entries_of(
    const std::filesystem::path& directory, std::error_code& error);

/// Makes a directory, and those that it is in, unless they are there. Throws Error{resource} naming
/// it.
void make_directories(const std::filesystem::path& directory);

}  // namespace moesaic
