#include "comm/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/wait.h"

namespace moesaic {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(20);
constexpr int kLooksAfterEnd = 50;
/// So long a rank that has called waits for answers. One that waits itself answers at once, one at
/// work between two tasks.
constexpr auto kPatience = std::chrono::milliseconds(1500);
/// The same after a process has ended: its launcher ends the others in a second.
constexpr auto kPatienceAfterEnd = std::chrono::milliseconds(200);

/// `waiting` without the words about the rank that a line of the list begins with anyway.
std::string about_wait(std::string_view waiting, int rank, int size) {
  const std::string usual = fmt::format("rank {} of {}: ", rank, size);
  if (waiting.starts_with(usual)) return std::string(waiting.substr(usual.size()));
  return fmt::format("in a group of ranks, as {}", waiting);
}

}  // namespace

RollCall::RollCall(int rank, std::vector<std::string> hosts)
    : rank_(rank), hosts_(std::move(hosts)), reports_(hosts_.size()) {}

void RollCall::look() {
  listen(reports_);
  if (own().lost_rank < 0) own().lost_rank = find_lost();
  const auto has_called = [](const RankReport& report) {
    return report.state == RankReport::State::waits || report.lost_rank >= 0;
  };
  is_called_ = is_called_ || std::ranges::any_of(reports_, has_called);
}

/// What a rank has told before it ended is there, but may need some looks to be seen.
int RollCall::find_lost() {
  int lost = look_for_lost(reports_);
  for (int look = 0; look < kLooksAfterEnd && lost >= 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    listen(reports_);
    lost = look_for_lost(reports_);
  }
  return lost;
}

bool RollCall::is_called() {
  const auto now = Clock::now();
  if (!is_called_ && now >= next_look_) {
    next_look_ = now + kLookEvery;
    look();
  }
  return is_called_;
}

void RollCall::answer(const RowLabel& place) {
  if (own().state != RankReport::State::silent || !is_called()) return;
  own().state = RankReport::State::at_work;
  own().place = place;
  tell(own());
}

void RollCall::call(const RowLabel& place, const std::string& waiting, Clock::time_point begin) {
  own().state = RankReport::State::waits;
  own().place = place;
  own().waited_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  own().waiting = {};
  about_wait(waiting, rank_, size()).copy(own().waiting.data(), own().waiting.size() - 1);
  tell(own());
  hear_all();
  std::string text = verdict();
  for (int rank = 0; rank < size(); ++rank) text += "\n  " + line(rank);
  const auto first = std::ranges::find_if(
      reports_, [](const RankReport& report) { return report.state != RankReport::State::silent; });
  throw LostRank(text, first - reports_.begin() == rank_, lost_rank() >= 0);
}

RankReport RollCall::leaving_report() const {
  RankReport report = reports_[static_cast<std::size_t>(rank_)];
  report.state = RankReport::State::left;
  return report;
}

/// Until all have answered that can, for as long as it is worth while.
void RollCall::hear_all() {
  const auto begin = Clock::now();
  const auto has_answered = [this](const RankReport& report) {
    return report.state == RankReport::State::waits || report.state == RankReport::State::left ||
           &report - reports_.data() == lost_rank();
  };
  while (!std::ranges::all_of(reports_, has_answered)) {
    const auto patience = lost_rank() >= 0 ? kPatienceAfterEnd : kPatience;
    if (Clock::now() - begin > patience) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    look();
  }
}

int RollCall::lost_rank() const {
  for (const RankReport& report : reports_) {
    if (report.lost_rank >= 0) return report.lost_rank;
  }
  return -1;
}

/// "rank 2 (node3)"
std::string RollCall::name(int rank) const {
  const std::string& host = hosts_[static_cast<std::size_t>(rank)];
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, host);
}

std::string RollCall::names(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + name(rank);
  return text;
}

std::string RollCall::verdict() const {
  if (lost_rank() >= 0) return name(lost_rank()) + " has ended";
  const auto all_that = [this](RankReport::State state) {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      const RankReport& report = reports_[static_cast<std::size_t>(rank)];
      if (report.state == state && !report.has_waited()) ranks.push_back(rank);
    }
    return ranks;
  };
  const std::vector<int> left = all_that(RankReport::State::left);
  const std::vector<int> silent = all_that(RankReport::State::silent);
  const std::vector<int> at_work = all_that(RankReport::State::at_work);
  if (!silent.empty()) return fmt::format("all wait for {}, silent", names(silent));
  if (!at_work.empty()) return fmt::format("all wait for {}, at work", names(at_work));
  if (!left.empty()) return fmt::format("all wait for {}, which left the job", names(left));
  const bool same_place = std::ranges::all_of(
      reports_, [this](const RankReport& report) { return report.place == reports_[0].place; });
  return same_place ? "all ranks wait for each other"
                    : "all ranks wait for each other, at different places";
}

std::string RollCall::line(int rank) const {
  const RankReport& report = reports_[static_cast<std::size_t>(rank)];
  if (rank == lost_rank()) return name(rank) + ": has ended";
  const std::string waits = fmt::format("{}: {}: {}, for {:.1f} s", name(rank), report.place.text(),
                                        report.waiting.data(), report.waited_seconds);
  switch (report.state) {
    case RankReport::State::silent:
      return name(rank) + ": silent";
    case RankReport::State::at_work:
      return fmt::format("{}: {}: at work", name(rank), report.place.text());
    case RankReport::State::left:
      return report.has_waited() ? waits + ", and has left the job"
                                 : name(rank) + ": has left the job";
    case RankReport::State::waits:
      return waits;
  }
  return "";
}

}  // namespace moesaic
