#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "tests/launch/program.h"

namespace moesaic::test {

/// A program on a terminal of its own (a pty), with somebody who types and looks.
class Terminal {
 public:
  /// Starts it; its standard output goes to `output_file` if that is not empty. Variables without a
  /// value are taken away.
  Terminal(const Arguments& command, const Variables& variables,
           const std::string& output_file = "");
  /// Kills it if it has not ended.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Keys, such as "hello\n", "\x03" (Ctrl-C), "\x1b[A" (arrow up).
  void type(const std::string& keys) const;
  /// Waits until `text` is shown, after all that was waited for before; what came up to its end.
  /// Fails the test, and returns nothing, if the program ends first, or kHangSeconds pass.
  std::string wait_for(const std::string& text);
  /// The same for so many bytes of whatever it is.
  std::string wait_for_bytes(std::size_t count);
  /// Waits until the program ends: its exit code, 128 + signal if one ended it.
  [[nodiscard]] int wait_for_end();
  /// All that was shown so far, with what controls the terminal.
  [[nodiscard]] const std::string& shown() const { return shown_; }
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  /// Takes in what has come; false if no more will.
  bool look();
  /// What is shown up to the end that is found, npos until it is.
  std::string wait_until(const std::function<std::size_t(std::size_t from)>& find_end,
                         const std::string& what);

  pid_t process_ = -1;
  int descriptor_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;  // what was waited for ends here
};

}  // namespace moesaic::test
