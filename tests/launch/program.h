#pragma once

#include <map>
#include <string>
#include <vector>

namespace moesaic::test {

/// How a program ended.
struct ProgramResult {
  int exit_code = -1;  // 128 + signal if one ended it
  std::string out;
  std::string err;
  double seconds = 0;

  /// For failure messages.
  [[nodiscard]] std::string text() const;
  /// How many lines of `err` hold "error: ": each failure is to be told once.
  [[nodiscard]] int error_lines() const;
};

using Variables = std::map<std::string, std::string>;

/// Runs a program to its end, without input. It is killed after `limit_seconds`, which shows as
/// exit code 137.
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& command,
                                        const Variables& variables = {}, double limit_seconds = 60);

/// moesaic as a single process.
[[nodiscard]] ProgramResult run_moesaic(const std::vector<std::string>& arguments,
                                        const Variables& variables = {});

/// mpirun -n `ranks` moesaic.
[[nodiscard]] ProgramResult run_ranks(int ranks, const std::vector<std::string>& arguments,
                                      const Variables& variables = {});

/// One mpirun whose ranks get arguments of their own: one rank for each element.
[[nodiscard]] ProgramResult run_different_ranks(
    const std::vector<std::vector<std::string>>& arguments_of_ranks);

}  // namespace moesaic::test
