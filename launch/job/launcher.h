#pragma once

#include <cstdlib>
#include <functional>

namespace moesaic {

/// What the program that started this process says of itself, in environment variables.
class Launcher {
 public:
  using Variables = std::function<const char*(const char* name)>;
  /// `variables` are those of the environment, or a test's.
  explicit Launcher(Variables variables = std::getenv) : variables_(std::move(variables)) {}

  /// Open MPI's own.
  [[nodiscard]] bool is_mpirun() const { return has("OMPI_COMM_WORLD_SIZE"); }
  /// A task of srun, whether or not MPI knows of it.
  [[nodiscard]] bool is_srun() const { return has("SLURM_PROCID"); }
  /// Another than mpirun, but one that tells MPI which processes belong together.
  [[nodiscard]] bool is_process_manager() const {
    return !is_mpirun() && (has("PMIX_RANK") || has("PMI_RANK"));
  }
  /// MPI's only process: nothing that MPI knows of has started it.
  [[nodiscard]] bool is_none() const { return !is_mpirun() && !is_process_manager(); }
  /// Whether all processes of the job are known to be on this host.
  [[nodiscard]] bool is_one_host() const;

  /// Processes that it has started together.
  struct Started {
    int processes = 1;
    const char* variable = "";  // that says so
  };
  [[nodiscard]] Started started() const;
  /// Whether this process is another than the first of them.
  [[nodiscard]] bool is_later_process() const;

 private:
  [[nodiscard]] bool has(const char* name) const { return variables_(name) != nullptr; }

  Variables variables_;
};

}  // namespace moesaic
