#include "launch/job/failure.h"

#include "base/error.h"
#include "base/interruption.h"
#include "comm/roll_call.h"
#include "launch/job/agreement.h"

namespace moesaic {
namespace {

/// Longer than a launcher takes to end the job after it has lost a rank.
constexpr auto kLauncherPatience = std::chrono::seconds(3);

}  // namespace

Failure describe_current_exception() {
  try {
    throw;
  } catch (const LostRank& lost) {
    return {exit_code(lost.kind()), lost.what(),
            lost.speaks() ? std::chrono::seconds(0) : kLauncherPatience,
            lost.has_ended() ? kLauncherPatience : std::chrono::seconds(0)};
  } catch (const Interrupted& interrupted) {
    // Where another rank has failed, the launcher ends this one before it adds to that.
    const auto silence = interrupted.is_terminated() ? kLauncherPatience : std::chrono::seconds(0);
    return {kInterruptedCode, interrupted.what(), silence, {}, LogLevel::warning};
  } catch (...) {
    const Error error = current_error();
    const std::string bug = error.kind() == ErrorKind::internal ? "internal error: " : "";
    const bool is_echo = error.kind() == ErrorKind::peer;  // of another rank's failure, probably
    return {exit_code(error.kind()), bug + error.what(), std::chrono::seconds(is_echo ? 1 : 0)};
  }
}

}  // namespace moesaic
