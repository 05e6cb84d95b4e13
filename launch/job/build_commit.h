#pragma once

#include <string_view>

namespace moesaic {

/// The commit that the program was built from, as `git describe --always --dirty` names it; empty
/// outside of a repository. cmake/build_commit.cmake writes its body with each build.
[[nodiscard]] std::string_view build_commit() noexcept;

}  // namespace moesaic
