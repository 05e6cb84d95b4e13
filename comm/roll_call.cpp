#include "comm/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

/// More ranks than these are told in fewer words.
constexpr std::size_t kMostNames = 3;

/// How a report begins of a wait in a part of the job, which numbers its ranks otherwise.
constexpr std::string_view kInGroup = "in a group of ranks, as ";

/// `waiting` without the words about the rank that a line of the list begins with anyway.
std::string about_wait(std::string_view waiting, int rank, int size) {
  const std::string usual = fmt::format("rank {} of {}: ", rank, size);
  if (waiting.starts_with(usual)) return std::string(waiting.substr(usual.size()));
  return fmt::format("{}{}", kInGroup, waiting);
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

void RollCall::call(const RowLabel& place, const Awaited& waiting, Clock::time_point begin) {
  own().state = RankReport::State::waits;
  own().place = place;
  own().waited_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  own().waiting = {};
  about_wait(waiting.text, rank_, size()).copy(own().waiting.data(), own().waiting.size() - 1);
  own().awaited = {};
  for (const int rank : waiting.ranks) own().awaited.add(rank);
  own().meeting = waiting.meeting;
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

std::string RollCall::name(int rank) const {
  const std::string& host = hosts_[static_cast<std::size_t>(rank)];
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, host);
}

std::string RollCall::names(const std::vector<int>& ranks) const {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + name(rank);
  return text;
}

/// For whom a rank waits, as far as it has told.
std::vector<int> RollCall::awaited_by(int rank) const {
  const RankReport& own = reports_[static_cast<std::size_t>(rank)];
  std::vector<int> ranks;
  for (int other = 0; other < size() && own.has_waited(); ++other) {
    const RankReport& report = reports_[static_cast<std::size_t>(other)];
    const bool has_come = report.has_waited() && own.meeting.has_seen(report.meeting);
    if (other != rank && own.awaited.has(other) && !has_come) ranks.push_back(other);
  }
  return ranks;
}

WaitGraph RollCall::waits() const {
  WaitGraph waits;
  for (int rank = 0; rank < size(); ++rank) waits.push_back(awaited_by(rank));
  return waits;
}

/// Ranks of this state that wait for nobody; only those that others wait for if `waits` is given.
std::vector<int> RollCall::all_that(RankReport::State state, const WaitGraph* waits) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const RankReport& report = reports_[static_cast<std::size_t>(rank)];
    if (report.state != state || report.has_waited()) continue;
    const auto has_it = [&](const std::vector<int>& awaited) {
      return std::ranges::find(awaited, rank) != awaited.end();
    };
    if (waits == nullptr || std::ranges::any_of(*waits, has_it)) ranks.push_back(rank);
  }
  return ranks;
}

std::string RollCall::verdict() const {
  if (lost_rank() >= 0) return told_end(lost_rank());
  using State = RankReport::State;
  constexpr std::array<std::pair<State, std::string_view>, 3> kStates = {
      {{State::silent, "silent"},
       {State::at_work, "at work"},
       {State::left, "which left the job"}}};
  const WaitGraph waits = this->waits();
  for (const WaitGraph* some : {&waits, static_cast<const WaitGraph*>(nullptr)}) {
    for (const auto& [state, what] : kStates) {
      const std::vector<int> ranks = all_that(state, some);
      if (!ranks.empty()) return fmt::format("all wait for {}, {}", names(ranks), what);
    }
    const std::string text = some == nullptr ? "" : lead(waits);
    if (!text.empty()) return text;
  }
  const bool same_place = std::ranges::all_of(
      reports_, [this](const RankReport& report) { return report.place == reports_[0].place; });
  return same_place ? "all ranks wait for each other"
                    : "all ranks wait for each other, at different places";
}

/// "rank 2 (node3), which waits at pass 12, layer 2, results for rank 0 (node1)"
std::string RollCall::stand(int rank, const std::vector<int>& awaited) const {
  std::string text = fmt::format("{}, which waits at {}", name(rank),
                                 reports_[static_cast<std::size_t>(rank)].place.text());
  if (awaited.empty()) return text;
  if (awaited.size() <= kMostNames) return text + " for " + names(awaited);
  return text + fmt::format(" for {} ranks", awaited.size());
}

/// Where the waits lead; nothing if that tells no rank from the others.
std::string RollCall::lead(const WaitGraph& waits) const {
  const auto has_waited = [](const RankReport& report) { return report.has_waited(); };
  const bool all_wait = std::ranges::all_of(reports_, has_waited);
  std::string text;
  std::size_t num_named = 0;
  for (const std::vector<int>& ranks : where_waits_lead(waits)) {
    // One that waits for nobody known says nothing beside others that do not wait at all.
    if (waits[static_cast<std::size_t>(ranks.front())].empty() && !all_wait) continue;
    num_named += ranks.size();
    text += text.empty() ? "all waits lead to " : "; or to ";
    if (ranks.size() > kMostNames) {
      text += names(ranks) + ", which wait for each other";
      continue;
    }
    for (const int rank : ranks) {
      if (rank != ranks.front()) text += ", and ";
      text += stand(rank, waits[static_cast<std::size_t>(rank)]);
    }
  }
  return num_named < reports_.size() ? text : "";
}

/// Whom a rank awaits, as the job numbers them, if its report has other numbers.
std::string RollCall::names_in_job(int rank) const {
  const RankReport& report = reports_[static_cast<std::size_t>(rank)];
  if (!std::string_view(report.waiting.data()).starts_with(kInGroup)) return "";
  const std::vector<int> awaited = awaited_by(rank);
  if (awaited.empty() || awaited.size() > kMostNames) return "";
  return fmt::format(" (of the job: {})", names(awaited));
}

std::string RollCall::line(int rank) const {
  const RankReport& report = reports_[static_cast<std::size_t>(rank)];
  if (rank == lost_rank()) return name(rank) + ": has ended";
  const std::string waits =
      fmt::format("{}: {}: {}{}, for {:.1f} s", name(rank), report.place.text(),
                  report.waiting.data(), names_in_job(rank), report.waited_seconds);
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
