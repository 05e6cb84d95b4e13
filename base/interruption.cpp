#include "base/interruption.h"

#include <fmt/core.h>
#include <string.h>
#include <unistd.h>

#include <utility>

namespace moesaic {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

Interruption::Interruption(InterruptionOptions options)
    : options_(std::move(options)), watch_(options_.signals) {}

bool Interruption::wanted() {
  if (!reason_.empty()) return true;
  if (const auto signal = watch_.caught()) {
    reason_ = signal_name(*signal);
  } else if (options_.max_time && Clock::now() - start_ >= *options_.max_time) {
    reason_ = "the time is over";
  } else if (stop_file_is_there()) {
    asked_by_file_ = true;
    reason_ = options_.stop_file + " is there";
  }
  return !reason_.empty();
}

bool Interruption::stop_file_is_there() {
  if (options_.stop_file.empty() || Clock::now() < next_look_) return false;
  next_look_ = Clock::now() + kLookEvery;
  return ::access(options_.stop_file.c_str(), F_OK) == 0;
}

void Interruption::leave_if_wanted(std::string_view doing) {
  if (!wanted()) return;
  remove_stop_file();
  throw Interrupted(fmt::format("interrupted ({}) {}", reason_, doing),
                    reason_ == signal_name(SIGTERM));
}

void Interruption::remove_stop_file() const noexcept {
  if (asked_by_file_) ::unlink(options_.stop_file.c_str());
}

}  // namespace moesaic
