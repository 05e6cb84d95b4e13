#include "launch/job/agreement.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/interruption.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

constexpr std::int32_t kFine = -1;
constexpr std::int32_t kInterrupted = -2;

/// How a body ended on this rank.
struct Outcome {
  std::int32_t state = kFine;  // or kInterrupted, or the kind of the error
  std::optional<Error> error;
  std::optional<std::string> interrupted;  // what it was at

  Outcome() = default;
  explicit Outcome(const Error& thrown)
      : state(static_cast<std::int32_t>(thrown.kind())), error(thrown) {}
  explicit Outcome(const Interrupted& thrown) : state(kInterrupted), interrupted(thrown.what()) {}
};

Outcome call(const std::function<void()>& body) {
  try {
    body();
  } catch (const Interrupted& interrupted) {
    return Outcome(interrupted);
  } catch (...) {
    return Outcome(current_error());
  }
  return {};
}

/// Throws on all ranks if one of them has an error, or was interrupted.
void share(Communicator& world, const Outcome& own) {
  const std::vector<std::int32_t> states = gather_values(world, own.state);
  const auto failed = std::ranges::find_if(states, [](std::int32_t state) { return state >= 0; });
  if (failed == states.end()) {
    if (std::ranges::find(states, kInterrupted) == states.end()) return;
    // Nobody has failed: a SIGTERM was for all.
    throw Interrupted(own.interrupted.value_or("another rank was asked to stop"));
  }
  const auto speaker = static_cast<int>(failed - states.begin());
  const Error silent(static_cast<ErrorKind>(*failed), fmt::format("rank {} failed", speaker));
  throw AgreedError(speaker == world.rank() ? *own.error : silent, speaker == world.rank());
}

}  // namespace

void agree(Communicator& world, const std::function<void()>& body) {
  share(world, call(body));
}

void agree_on_work(Communicator& world, LongWork& work, const std::function<void()>& body) {
  const Outcome own = call(body);
  own.state == kFine ? work.finish() : work.give_up();
  share(world, own);
}

LongWork::Notice waiting_notice(const Log& log, const std::string& what) {
  return [&log, what](const std::string& waiting) {
    log.once(LogLevel::info, "{}: {}", what, waiting);
  };
}

void require_same(Communicator& world, std::span<const Shared> shared) {
  std::vector<std::uint64_t> own;
  for (const Shared& thing : shared) own.push_back(thing.fingerprint);
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (std::size_t i = own.size(); i < all.size(); ++i) {
    if (all[i] == all[i % own.size()]) continue;
    const Error error(ErrorKind::peer,
                      fmt::format("{} differ between rank 0 and rank {}; all ranks need the same",
                                  shared[i % own.size()].what, i / own.size()));
    throw AgreedError(error, world.rank() == 0);
  }
}

int exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return 2;
    case ErrorKind::file:
      return 3;
    case ErrorKind::resource:
      return 4;
    case ErrorKind::peer:
      return 5;
    case ErrorKind::internal:
      return 1;
  }
  return 1;
}

}  // namespace moesaic
