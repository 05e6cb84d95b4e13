#pragma once

#include <string>

namespace moesaic {

/// Which program this is.
struct ProgramVersion {
  std::string number{};   // "0.1.0"
  std::string commit{};   // of the sources; empty: they are in no git repository
  bool is_dirty = false;  // they differ from the commit
  std::string compiler{};

  /// "0.1.0 (83d05f84c1a2, changed)".
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] ProgramVersion program_version();

}  // namespace moesaic
