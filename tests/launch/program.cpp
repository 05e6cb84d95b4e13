#include "tests/launch/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace moesaic::test {
namespace {

/// mpirun refuses root and more ranks than cores unless it is told.
const Variables kLauncherVariables = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                      {"OMPI_MCA_hwloc_base_binding_policy", "none"}};

void redirect(const std::string& path, int flags, int descriptor) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

[[noreturn]] void become(const std::vector<std::string>& command, const Variables& variables,
                         const TemporaryDirectory& directory) {
  setpgid(0, 0);            // so that all of it can be killed together
  signal(SIGINT, SIG_DFL);  // shells have it ignored in what they start in the background
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(directory.path_of("out"), O_WRONLY | O_CREAT, STDOUT_FILENO);
  redirect(directory.path_of("err"), O_WRONLY | O_CREAT, STDERR_FILENO);
  for (const auto& [name, value] : kLauncherVariables) setenv(name.c_str(), value.c_str(), 1);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

std::vector<std::string> with_program(std::vector<std::string> command,
                                      const std::vector<std::string>& arguments) {
  command.push_back(MOESAIC_PROGRAM);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace

std::string ProgramResult::text() const {
  std::ostringstream all;
  all << "exit code " << exit_code << " after " << seconds << " s\nstdout:\n"
      << out << "\nstderr:\n"
      << err;
  return all.str();
}

int ProgramResult::error_lines() const {
  int count = 0;
  for (std::size_t at = err.find("error: "); at != std::string::npos;
       at = err.find("error: ", at + 1)) {
    ++count;
  }
  return count;
}

RunningProgram::RunningProgram(const Arguments& command, const Variables& variables)
    : process_(fork()) {
  if (process_ < 0) throw std::runtime_error("fork failed");
  if (process_ == 0) become(command, variables, directory_);
  setpgid(process_, process_);
}

RunningProgram::~RunningProgram() {
  if (!status_) static_cast<void>(wait(0));
}

std::string RunningProgram::out() const {
  const std::string path = directory_.path_of("out");
  return std::filesystem::exists(path) ? read_text(path) : "";
}

std::string RunningProgram::err() const {
  const std::string path = directory_.path_of("err");
  return std::filesystem::exists(path) ? read_text(path) : "";
}

bool RunningProgram::wait_until(const std::function<bool()>& done) {
  const auto limit = Clock::now() + std::chrono::duration<double>(kHangSeconds);
  while (!done()) {
    if (status_) return false;
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) != 0) {
      status_ = status;
      return false;
    }
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void RunningProgram::send(int signal) const {
  if (!status_) kill(process_, signal);
}

ProgramResult RunningProgram::wait(double limit_seconds) {
  const auto limit = start_ + std::chrono::duration<double>(limit_seconds);
  wait_until([&] { return status_ || Clock::now() > limit; });
  if (!status_) {
    int status = 0;
    kill(-process_, SIGKILL);
    waitpid(process_, &status, 0);
    status_ = status;
  }
  ProgramResult result;
  result.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  result.exit_code = WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
  result.out = out();
  result.err = err();
  return result;
}

ProgramResult run_program(const Arguments& command, const Variables& variables,
                          double limit_seconds) {
  return RunningProgram(command, variables).wait(limit_seconds);
}

Arguments moesaic_command(const Arguments& arguments) {
  return with_program({}, arguments);
}

Arguments ranks_command(int ranks, const Arguments& arguments) {
  return with_program({MOESAIC_MPIRUN, "-n", std::to_string(ranks)}, arguments);
}

ProgramResult run_moesaic(const Arguments& arguments, const Variables& variables) {
  return run_program(moesaic_command(arguments), variables);
}

ProgramResult run_ranks(int ranks, const Arguments& arguments, const Variables& variables) {
  return run_program(ranks_command(ranks, arguments), variables);
}

ProgramResult run_different_ranks(const std::vector<Arguments>& arguments_of_ranks) {
  std::vector<std::string> command = {MOESAIC_MPIRUN};
  for (std::size_t rank = 0; rank < arguments_of_ranks.size(); ++rank) {
    if (rank > 0) command.push_back(":");
    command.insert(command.end(), {"-n", "1"});
    command = with_program(std::move(command), arguments_of_ranks[rank]);
  }
  return run_program(command);
}

ProgramResult run_with_input(const Arguments& command, const std::string& input) {
  const TemporaryDirectory directory;
  const std::string file = directory.path_of("input");
  write_text(file, input);
  return run_program(joined({"sh", "-c", "exec \"$@\" < '" + file + "'", "sh"}, command));
}

Arguments joined(Arguments first, const Arguments& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Arguments generate_with(const Arguments& more) {
  return joined({"generate", "-m", kDemo, "-p", "In the beginning", "-n", "8"}, more);
}

Arguments convert_to(const std::string& out, const Arguments& more) {
  return joined({"convert", "-m", kDemo, "-o", out}, more);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void expect_failure(const ProgramResult& result, int exit_code,
                    const std::vector<std::string>& texts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.text();
  EXPECT_EQ(result.error_lines(), 1) << result.text();
  for (const std::string& part : texts) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "no " << part << " in " << result.text();
  }
}

void wait_until_nobody_writes(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  close(file);
}

std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename().string()] = read_text(entry.path().string());
  }
  return files;
}

}  // namespace moesaic::test
