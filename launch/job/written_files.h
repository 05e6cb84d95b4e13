#pragma once

#include <filesystem>
#include <string>

#include "launch/options/options.h"

namespace moesaic {

/// Throws Error{usage} if a file that an option names to be written is one that the run reads (its
/// texts, data, model, adapter) or one that another option names to be written: nothing is to be
/// lost by a slip.
void require_apart(const Options& options);

/// A path, which need not be there, from the root and without links.
[[nodiscard]] std::filesystem::path full_path(const std::string& path);

/// Whether a path, which need not be there, is this directory or below it, by whatever names.
[[nodiscard]] bool is_within(const std::string& path, const std::string& directory);

}  // namespace moesaic
