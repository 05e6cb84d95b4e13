#pragma once

#include <string>
#include <vector>

namespace moesaic {

/// Paths of the shared libraries in this process, those that libraries have loaded themselves too.
[[nodiscard]] std::vector<std::string> loaded_libraries();

}  // namespace moesaic
