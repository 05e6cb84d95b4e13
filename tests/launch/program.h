#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace moesaic::test {

/// Of this repository.
inline const std::string kData = MOESAIC_TEST_DATA;
inline const std::string kDemo = kData + "/demo-model";

using Arguments = std::vector<std::string>;

/// How a program ended.
struct ProgramResult {
  int exit_code = -1;  // 128 + signal if one ended it
  std::string out;
  std::string err;
  double seconds = 0;  // for messages: how fast a machine is must not decide a test

  /// For failure messages.
  [[nodiscard]] std::string text() const;
  /// How many lines of `err` hold "error: ": each failure is to be told once.
  [[nodiscard]] int error_lines() const;
};

using Variables = std::map<std::string, std::string>;

/// A program that hangs is killed after this time: less than --timeout has by default, so that a
/// rank that waits for a lost one until then shows, and more than any test takes on a busy machine.
constexpr double kHangSeconds = 240;

/// Runs a program to its end, without input. It is killed after `limit_seconds`, which shows as
/// exit code 137.
[[nodiscard]] ProgramResult run_program(const Arguments& command, const Variables& variables = {},
                                        double limit_seconds = kHangSeconds);

/// A program that is under way. All of it is killed if it has not ended by the end of its scope.
class RunningProgram {
 public:
  explicit RunningProgram(const Arguments& command, const Variables& variables = {});
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  /// What it has written so far.
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;
  /// Waits until `done()` holds; false if the program ended before, or hangs.
  bool wait_until(const std::function<bool()>& done);
  /// A signal to the process that was started, not to those that it has started.
  void send(int signal) const;
  /// Waits for the end, as run_program.
  [[nodiscard]] ProgramResult wait(double limit_seconds = kHangSeconds);

 private:
  using Clock = std::chrono::steady_clock;
  TemporaryDirectory directory_;
  Clock::time_point start_ = Clock::now();
  pid_t process_;
  std::optional<int> status_;
};

/// The words that start moesaic itself, or `ranks` of it under mpirun.
[[nodiscard]] Arguments moesaic_command(const Arguments& arguments);
[[nodiscard]] Arguments ranks_command(int ranks, const Arguments& arguments);

/// moesaic as a single process.
[[nodiscard]] ProgramResult run_moesaic(const Arguments& arguments,
                                        const Variables& variables = {});

/// mpirun -n `ranks` moesaic.
[[nodiscard]] ProgramResult run_ranks(int ranks, const Arguments& arguments,
                                      const Variables& variables = {});

/// One mpirun whose ranks get arguments of their own: one rank for each element.
[[nodiscard]] ProgramResult run_different_ranks(const std::vector<Arguments>& arguments_of_ranks);

/// Runs a program whose standard input is a file with `input`.
[[nodiscard]] ProgramResult run_with_input(const Arguments& command, const std::string& input);

/// `first` and then `more`.
[[nodiscard]] Arguments joined(Arguments first, const Arguments& more);
/// moesaic generate of eight tokens after a text with the demo model, and `more`.
[[nodiscard]] Arguments generate_with(const Arguments& more);
/// moesaic convert of the demo model to the directory `out`, and `more`.
[[nodiscard]] Arguments convert_to(const std::string& out, const Arguments& more = {});

[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

/// Expects that the program ended with this exit code and one line of error that has all `texts`.
void expect_failure(const ProgramResult& result, int exit_code,
                    const std::vector<std::string>& texts);

/// Ranks outlive the launcher that started them for a moment: waits until none holds the file.
void wait_until_nobody_writes(const std::string& path);

/// Bytes of all files of a directory, by name.
[[nodiscard]] std::map<std::string, std::string> contents(const std::string& directory);

}  // namespace moesaic::test
