#include "tests/launch/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

namespace moesaic::test {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void become(const Arguments& command, const Variables& variables,
                         const std::string& output_file) {
  for (const auto& [name, value] : variables) {
    if (value.empty()) {
      unsetenv(name.c_str());
    } else {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (!output_file.empty()) {
    const int file = open(output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0) _exit(126);
  }
  signal(SIGINT, SIG_DFL);  // shells have it ignored in what they start in the background
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

Terminal::Terminal(const Arguments& command, const Variables& variables,
                   const std::string& output_file) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = 500;  // so that no line is broken
  process_ = forkpty(&descriptor_, nullptr, nullptr, &size);
  if (process_ < 0) throw std::runtime_error("forkpty failed");
  if (process_ == 0) become(command, variables, output_file);
}

Terminal::~Terminal() {
  if (process_ > 0) {
    kill(-process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  close(descriptor_);
}

void Terminal::type(const std::string& keys) const {
  if (write(descriptor_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
    throw std::runtime_error("nobody reads what is typed");
  }
}

bool Terminal::look() {
  pollfd output{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (poll(&output, 1, 50) == 0) return true;
  std::array<char, 4096> bytes{};
  const ssize_t count = read(descriptor_, bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;  // EIO: nobody has the terminal open any more
  shown_.append(bytes.data(), static_cast<std::size_t>(count));
  return true;
}

std::string Terminal::wait_until(const std::function<std::size_t(std::size_t from)>& find_end,
                                 const std::string& what) {
  const auto limit = Clock::now() + std::chrono::duration<double>(kHangSeconds);
  bool more = true;
  while (true) {
    const std::size_t end = find_end(seen_);
    if (end != std::string::npos) {
      const std::string part = shown_.substr(seen_, end - seen_);
      seen_ = end;
      return part;
    }
    if (!more || Clock::now() > limit) {
      ADD_FAILURE() << "no " << what << " in: " << shown_.substr(seen_)
                    << "\nafter: " << shown_.substr(0, seen_);
      return "";
    }
    more = look();
  }
}

std::string Terminal::wait_for(const std::string& text) {
  return wait_until(
      [&](std::size_t from) {
        const std::size_t at = shown_.find(text, from);
        return at == std::string::npos ? at : at + text.size();
      },
      text);
}

std::string Terminal::wait_for_bytes(std::size_t count) {
  return wait_until(
      [&](std::size_t from) {
        return shown_.size() >= from + count ? shown_.size() : std::string::npos;
      },
      std::to_string(count) + " bytes");
}

int Terminal::wait_for_end() {
  const auto limit = Clock::now() + std::chrono::duration<double>(kHangSeconds);
  while (look() && Clock::now() < limit) continue;
  if (Clock::now() >= limit) kill(-process_, SIGKILL);
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace moesaic::test
