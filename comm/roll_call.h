#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/awaited.h"
#include "comm/row_label.h"
#include "comm/wait_graph.h"

namespace moesaic {

/// What a rank tells the others once somebody has waited in vain. Trivial, so that it can travel.
struct RankReport {
  enum class State : std::int32_t { silent, at_work, waits, left };
  State state = State::silent;
  std::int32_t lost_rank = -1;  // whose process has ended, as this rank has seen; -1: none
  RowLabel place{};
  double waited_seconds = 0;
  std::array<char, 256>
      waiting{};       // "exchange_rows: waiting for the rows of rank 2"; cut if longer
  RankBits awaited{};  // from whom that comes
  Meeting meeting{};   // for those of them that have not made this call

  /// Whether it has waited in vain; it may have left since.
  [[nodiscard]] bool has_waited() const noexcept { return waiting[0] != 0; }
};

/// A wait that has come to nothing. The message names the rank that is to blame, and on further
/// lines where each rank is.
class LostRank : public Error {
 public:
  LostRank(const std::string& message, bool speaks, bool has_ended)
      : Error(ErrorKind::peer, message), speaks_(speaks), has_ended_(has_ended) {}
  /// All ranks that wait get this error; one of them is to tell it.
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }
  /// The process of a rank has ended: whatever has started the ranks will end the others.
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// The same with one more line.
  [[nodiscard]] LostRank with_line(const std::string& line) const {
    return {what() + ("\n  " + line), speaks_, has_ended_};
  }

 private:
  bool speaks_;
  bool has_ended_;
};

/// How the ranks of a job tell each other where they are when one of them has waited in vain. That
/// rank calls: it sends its report to all others, each of which sends its own to all. So all that
/// answer know the same, and those that do not are what the others wait for. Of one thread.
class RollCall {
 public:
  /// `hosts`: [ranks of the job] their names, or empty ones.
  RollCall(int rank, std::vector<std::string> hosts);
  virtual ~RollCall() = default;
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// Whether a rank has called, or one whose process this rank sees has ended. Looks now and then:
  /// cheap, to be asked often.
  [[nodiscard]] bool is_called();
  /// To be called now and then by a rank that is at work at `place`: answers, once, if it is
  /// called.
  void answer(const RowLabel& place);
  /// This rank waits at `place` since `begin`, in vain or because it is called: hears the others
  /// for a while and throws LostRank. `waiting`: "rank 0 of 3: barrier: waiting for rank 2", and
  /// rank 2, as the job numbers it.
  [[noreturn]] void call(const RowLabel& place, const Awaited& waiting,
                         std::chrono::steady_clock::time_point begin);

 protected:
  /// Sends this rank's report to all others; never blocks. A rank that was at work sends another
  /// one when it waits.
  virtual void tell(const RankReport& own) = 0;
  /// Takes the reports that have come; the last of each rank counts. Never blocks.
  virtual void listen(std::span<RankReport> reports) = 0;
  /// A rank whose process has ended though it has not told that it leaves, or -1.
  [[nodiscard]] virtual int look_for_lost(std::span<const RankReport> /*reports*/) { return -1; }

  /// What this rank tells when it leaves: where it has waited in vain, if it has.
  [[nodiscard]] RankReport leaving_report() const;
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(hosts_.size()); }
  /// "rank 2 (node3)"
  [[nodiscard]] std::string name(int rank) const;
  /// "rank 2 (node3) has ended"
  [[nodiscard]] std::string told_end(int rank) const { return name(rank) + " has ended"; }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] RankReport& own() { return reports_[static_cast<std::size_t>(rank_)]; }
  void look();
  [[nodiscard]] int find_lost();
  void hear_all();
  [[nodiscard]] int lost_rank() const;
  [[nodiscard]] std::string names(const std::vector<int>& ranks) const;
  [[nodiscard]] std::vector<int> awaited_by(int rank) const;
  [[nodiscard]] WaitGraph waits() const;
  [[nodiscard]] std::vector<int> all_that(RankReport::State state, const WaitGraph* waits) const;
  [[nodiscard]] std::string verdict() const;
  [[nodiscard]] std::string stand(int rank, const std::vector<int>& awaited) const;
  [[nodiscard]] std::string lead(const WaitGraph& waits) const;
  [[nodiscard]] std::string names_in_job(int rank) const;
  [[nodiscard]] std::string line(int rank) const;

  int rank_;
  std::vector<std::string> hosts_;
  std::vector<RankReport> reports_;  // [ranks] what is known
  Clock::time_point next_look_{};
  bool is_called_ = false;
};

}  // namespace moesaic
