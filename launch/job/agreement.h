#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "comm/communicator.h"

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
/// others stay silent. Collective. With one rank it is just a call.
void agree(Communicator& world, const std::function<void()>& body);

/// Throws AgreedError{peer} on all ranks unless `fingerprint` is the same on all. `what` names the
/// thing that differs. Collective.
void require_same(Communicator& world, std::string_view what, std::uint64_t fingerprint);

/// FNV-1a of `text`, continued from `seed`.
[[nodiscard]] std::uint64_t fingerprint(std::string_view text,
                                        std::uint64_t seed = 0xcbf29ce484222325U) noexcept;

/// The exit code of the program for this kind of error.
[[nodiscard]] int exit_code(ErrorKind kind) noexcept;

}  // namespace moesaic
