#pragma once

#include <string>

namespace moesaic {

/// Of the files of a model's or an adapter's directory that decide what it computes, as
/// checksum_text; of large ones samples count. Throws Error{file} if they cannot be read.
[[nodiscard]] std::string model_checksum(const std::string& directory);
/// The same of one file.
[[nodiscard]] std::string file_checksum(const std::string& path);

}  // namespace moesaic
