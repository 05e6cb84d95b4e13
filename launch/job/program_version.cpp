#include "launch/job/program_version.h"

#include <fmt/core.h>

#include <string_view>

#include "launch/job/build_commit.h"

namespace moesaic {

std::string ProgramVersion::text() const {
  if (commit.empty()) return number;
  return fmt::format("{} ({}{})", number, commit, is_dirty ? ", changed" : "");
}

ProgramVersion program_version() {
  constexpr std::string_view kDirty = "-dirty";
  ProgramVersion version{
      .number = MOESAIC_VERSION, .commit = std::string(build_commit()), .compiler = ""};
  version.is_dirty = version.commit.ends_with(kDirty);
  if (version.is_dirty) version.commit.resize(version.commit.size() - kDirty.size());
#if defined(__clang__)
  version.compiler = fmt::format("clang {}", __clang_version__);
#else
  version.compiler = fmt::format("g++ {}", __VERSION__);
#endif
  return version;
}

}  // namespace moesaic
