#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace moesaic {

enum class LogLevel;  // base/log.h, which is not installed

/// What every transport is told when it is made.
struct CommOptions {
  /// How long a rank waits for its peers in one call before it throws Error{peer}.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
  /// Pretends that every so many consecutive ranks form a node; 0 asks the system. One machine can
  /// so stand for several in tests.
  int ranks_per_node = 0;
  /// Refuses to run where the ranks of a node may not map each other's memory, or each is alone on
  /// its node, in place of MPI.
  bool require_shared_memory = false;
  /// Of each group every so manieth exchange of rows carries checksums of them, which receivers
  /// compare: a difference is Error{peer}. 0: none. The same on every rank.
  std::int64_t check_rows = 0;
  /// File in which this process's rank leaves its last exchanges if it fails; empty: none. Not for
  /// threads.
  std::string trace_file{};
  /// Called at once, from another thread, with what is to be told of ranks of other nodes that are
  /// lost. Empty: these are not watched; of the communicators of a process one is to watch. Not for
  /// threads.
  std::function<void(LogLevel level, const std::string& message)> tell{};
};

}  // namespace moesaic
