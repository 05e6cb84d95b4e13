#include "launch/study/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(10);
constexpr std::chrono::seconds kGrace(10);  // between SIGTERM and SIGKILL
constexpr int kNotStarted = 127;

/// An open file that the child gets in the place of one of its own. Throws Error{resource}.
class Redirection {
 public:
  Redirection(const std::string& path, int flags, int descriptor)
      : opened_(::open(path.c_str(), flags | O_CLOEXEC, 0666)), descriptor_(descriptor) {
    require(opened_ >= 0, ErrorKind::resource, "{}: cannot be written: {}", path,
            std::strerror(errno));
  }
  ~Redirection() { ::close(opened_); }
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;
  /// False: errno says why.
  [[nodiscard]] bool apply() const { return ::dup2(opened_, descriptor_) >= 0; }

 private:
  int opened_;
  int descriptor_;
};

/// Tells the parent why a child could not become a program: nothing once it has.
class StartReport {
 public:
  StartReport() {
    require(::pipe2(ends_.data(), O_CLOEXEC) == 0, ErrorKind::resource,
            "no program can be started: {}", std::strerror(errno));
  }
  ~StartReport() {
    for (const int end : ends_) close(end);
  }
  StartReport(const StartReport&) = delete;
  StartReport& operator=(const StartReport&) = delete;

  /// The child's.
  [[noreturn]] void fail(int error) const {
    (void)!::write(ends_[1], &error, sizeof error);
    ::_exit(kNotStarted);
  }
  /// The parent's: waits for the start. 0, or what fail() was told.
  [[nodiscard]] int wait() {
    close(std::exchange(ends_[1], -1));
    int error = 0;
    ssize_t count = 0;
    do {
      count = ::read(ends_[0], &error, sizeof error);
    } while (count < 0 && errno == EINTR);
    return count == sizeof error ? error : 0;
  }

 private:
  static void close(int end) {
    if (end >= 0) ::close(end);
  }
  std::array<int, 2> ends_{-1, -1};  // to read from, to write to
};

/// The child's part: never returns.
[[noreturn]] void become(std::span<const Redirection* const> files, char* const* arguments,
                         pid_t parent, const StartReport& report) {
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends the child in order
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);
  for (const Redirection* file : files) {
    if (!file->apply()) report.fail(errno);
  }
  ::execvp(arguments[0], arguments);
  report.fail(errno);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The exit code, once there is one.
std::optional<int> ended(pid_t child) {
  int status = 0;
  const pid_t done = ::waitpid(child, &status, WNOHANG);
  require(done >= 0 || errno == EINTR, ErrorKind::internal, "waitpid: {}", std::strerror(errno));
  return done == child ? std::optional(exit_code_of(status)) : std::nullopt;
}

std::string start_error(const std::string& program, int error) {
  const bool is_path = program.find('/') != std::string::npos;
  return fmt::format("cannot start {}: {}", program,
                     error == ENOENT && !is_path ? "it is not in PATH" : std::strerror(error));
}

/// While it lives, processes whose parents have ended become this one's children: what a script has
/// started, and left behind.
class Adoption {
 public:
  Adoption() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Adoption() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;
};

/// Whether a child is left in the group; takes leave of those that have ended.
bool any_left(pid_t group) {
  pid_t done = 0;
  do {
    done = ::waitpid(-group, nullptr, WNOHANG);
  } while (done > 0);
  return done == 0;
}

/// Ends the program and what it has started in its process group: a launcher may be a script.
void end(pid_t child) {
  ::kill(-child, SIGTERM);
  const Clock::time_point last = Clock::now() + kGrace;
  while (any_left(child)) {
    if (Clock::now() > last) ::kill(-child, SIGKILL);
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

int run_child(const ChildProgram& program, Interruption& interruption) {
  std::vector<std::string> words = program.arguments;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  constexpr int kNewFile = O_WRONLY | O_CREAT | O_TRUNC;
  const Redirection input("/dev/null", O_RDONLY, STDIN_FILENO);
  const Redirection output(program.output, kNewFile, STDOUT_FILENO);
  const Redirection errors(program.errors, kNewFile, STDERR_FILENO);
  const std::array<const Redirection*, 3> files = {&input, &output, &errors};
  StartReport report;
  const Adoption adoption;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  require(child >= 0, ErrorKind::resource, "no process can be started: {}", std::strerror(errno));
  if (child == 0) become(files, arguments.data(), parent, report);
  const int error = report.wait();
  while (true) {
    if (const std::optional<int> code = ended(child)) {
      if (error != 0) {
        throw Error(ErrorKind::usage, start_error(program.arguments.front(), error));
      }
      return *code;
    }
    if (interruption.wanted()) {
      end(child);
      throw Interrupted("interrupted");
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace moesaic
