#include "comm/long_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "comm/roll_call.h"

namespace moesaic {
namespace {

constexpr std::int64_t kDone = 1000;
constexpr std::int64_t kGivenUp = 1001;
constexpr auto kRoundEvery = std::chrono::milliseconds(200);
constexpr auto kNoticeEvery = std::chrono::seconds(10);
/// A rank that has nothing to do but wait for the next round looks so often; when it has lasted
/// longer than a rank that reads lets it, the communicator waits: its deadline counts from there.
constexpr auto kLook = std::chrono::milliseconds(2);
constexpr auto kUsualRound = kRoundEvery;

}  // namespace

LongWork::LongWork(Communicator& ranks, std::string what, Notice notice)
    : ranks_(ranks),
      what_(std::move(what)),
      notice_(std::move(notice)),
      rows_(static_cast<std::size_t>(ranks.size() - 1)),
      counts_(static_cast<std::size_t>(ranks.size()), 1),
      known_(counts_.size(), kDone),
      next_round_(Clock::now() + kRoundEvery) {
  counts_[static_cast<std::size_t>(ranks.rank())] = 0;
  ranks_.place() = ranks_.place().at(what_);
}

void LongWork::start_round(std::int64_t permille) {
  round_.reset();  // what it sent is not needed any more
  own_ = permille;
  round_ = ranks_.exchange_rows({.base = reinterpret_cast<const std::byte*>(&own_),
                                 .row_bytes = sizeof own_,
                                 .stride_bytes = sizeof own_,
                                 .rows = rows_,
                                 .counts = counts_,
                                 .label = RowLabel{}.at(what_)},
                                counts_);
  next_round_ = Clock::now() + kRoundEvery;
}

void LongWork::advance(std::int64_t done, std::int64_t total) {
  ranks_.progress();
  if (Clock::now() < next_round_ || !round_.is_done()) return;
  if (round_) take_round();
  if (std::ranges::find(known_, kGivenUp) != known_.end()) {
    throw Interrupted("another rank was asked to stop");  // or tells its error
  }
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  start_round(std::clamp<std::int64_t>(static_cast<std::int64_t>(share * kDone), 0, kDone - 1));
}

void LongWork::finish() {
  meet(kDone);
}

void LongWork::give_up() {
  meet(kGivenUp);
}

/// `permille`: how this rank's work has ended.
void LongWork::meet(std::int64_t permille) {
  auto next_notice = Clock::now() + kNoticeEvery;
  do {
    if (round_) wait_for_round();
    if (permille == kDone && wants_to_give_up_ && wants_to_give_up_()) permille = kGivenUp;
    start_round(permille);
    wait_for_round();
    if (notice_ && Clock::now() >= next_notice && !behind().empty()) {
      notice_("waiting for " + behind());
      next_notice = Clock::now() + kNoticeEvery;
    }
  } while (!behind().empty());
  round_.reset();
}

void LongWork::wait_for_round() {
  const auto start = Clock::now();
  while (!round_.is_done() && Clock::now() - start < kUsualRound)
    std::this_thread::sleep_for(kLook);
  try {
    round_.wait();
  } catch (const LostRank& error) {
    const std::string last = behind();
    if (last.empty()) throw;
    throw error.with_line(fmt::format("still {} when last heard of: {}", what_, last));
  }
  take_round();
}

void LongWork::take_round() {
  const ReceivedRows& received = round_.wait();
  std::size_t row = 0;
  for (std::size_t rank = 0; rank < known_.size(); ++rank) {
    if (received.counts[rank] == 0) continue;
    std::memcpy(&known_[rank], received.rows[row++], sizeof known_[rank]);
  }
}

/// "rank 2 (41 %), rank 5 (12 %)": others that are not done, as far as this rank knows.
std::string LongWork::behind() const {
  std::string text;
  for (std::size_t rank = 0; rank < known_.size(); ++rank) {
    if (known_[rank] >= kDone || std::cmp_equal(rank, ranks_.rank())) continue;
    text += fmt::format("{}rank {} ({} %)", text.empty() ? "" : ", ", rank, known_[rank] / 10);
  }
  return text;
}

}  // namespace moesaic
