#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launch/job/launcher.h"

namespace moesaic {

/// Open MPI's parameters (MCA) as somebody has set them: in the environment, where mpirun puts
/// those of its command line, in the user's file (~/.openmpi/mca-params.conf) and in those of the
/// installation.
class MpiParameters {
 public:
  /// `variables` are those of the environment, or a test's; `root` replaces "/" in tests.
  explicit MpiParameters(Launcher::Variables variables = std::getenv,
                         const std::string& root = "/");

  /// All values of one, which one source may set and another set again.
  [[nodiscard]] std::vector<std::string> values(std::string_view name) const;
  /// Whether the user has named further files, whatever stands in them.
  [[nodiscard]] bool has_further_files() const;

 private:
  struct Line {
    std::string name;
    std::string value;
  };

  void read(const std::string& file);

  Launcher::Variables variables_;
  std::vector<Line> lines_;  // of the files
};

}  // namespace moesaic
