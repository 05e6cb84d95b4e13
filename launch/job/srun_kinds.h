#pragma once

#include <string>
#include <vector>

namespace moesaic {

/// Kinds of --mpi in what `srun --mpi=list` prints.
[[nodiscard]] std::vector<std::string> mpi_kinds(const std::string& listing);

/// Those that srun has here; none if there is no srun, or it does not answer within ten seconds.
[[nodiscard]] std::vector<std::string> srun_kinds();

/// Whether `srun --mpi=pmix` can start ranks here.
[[nodiscard]] bool srun_has_pmix();

}  // namespace moesaic
