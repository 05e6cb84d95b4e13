#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "comm/long_work.h"

namespace moesaic {

/// An error that all ranks know of and leave on together; one of them tells it.
class AgreedError : public Error {
 public:
  AgreedError(const Error& error, bool speaks) : Error(error), speaks_(speaks) {}
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }

 private:
  bool speaks_;
};

/// Runs `body`, which makes no collective calls, on every rank and finds out whether it failed
/// anywhere. If so, throws AgreedError on all ranks, with the error of the lowest failing one; the
/// others stay silent; else, if a body was Interrupted, throws Interrupted on all ranks.
/// Collective.
void agree(Communicator& world, const std::function<void()>& body);

/// What LongWork tells while it waits, as a line of the log: "loading: waiting for rank 3 (41 %)".
/// `log` must outlive it.
[[nodiscard]] LongWork::Notice waiting_notice(const Log& log, const std::string& what);

/// The same as agree() for work that takes long, and some ranks longer than others: `body` calls
/// advance() as it goes, which interrupts it where another rank's has failed.
void agree_on_work(Communicator& world, LongWork& work, const std::function<void()>& body);

/// What all ranks need to have the same of.
struct Shared {
  std::string what;  // "the values of --top-k": ... differ between rank 0 and rank 1
  std::uint64_t fingerprint = 0;
};

/// Throws AgreedError{peer} on all ranks unless all fingerprints, as many on each rank, are the
/// same on all; it names the first that differs. One collective.
void require_same(Communicator& world, std::span<const Shared> shared);

/// The exit code of the program for this kind of error.
[[nodiscard]] int exit_code(ErrorKind kind) noexcept;
/// The one for work that was interrupted: the same command goes on.
inline constexpr int kInterruptedCode = 6;

}  // namespace moesaic
