#include "launch/bench/exchange_run.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "launch/bench/bench_timing.h"
#include "launch/job/gather.h"

namespace moesaic {
namespace {

/// What is timed in one turn.
enum Timed {
  kExchange,
  kDispatch,
  kCombine,
  kCopies,
  kAllToAll,
  kStream,
  kPingPong,
  kTurn,
  kCount
};
using Turn = std::array<double, kCount>;  // seconds of the slowest rank

constexpr int kPingPongs = 10;
constexpr std::int64_t kMostMpiBytes = std::numeric_limits<int>::max();

class ExchangeRun {
 public:
  ExchangeRun(const Runtime& runtime, MpiRivals& mpi, const ExchangeBed::Case& what,
              const ExchangeLoads& loads);
  [[nodiscard]] ExchangeTimes measure();

 private:
  [[nodiscard]] std::int64_t most(std::int64_t value) const;  // over all ranks
  Turn take_turn();
  void time_rivals(Turn& turn);
  [[nodiscard]] double microseconds(Timed what, double share = 0.25) const;

  const Runtime& runtime_;
  Communicator& world_;
  MpiRivals& mpi_;
  ExchangeBed bed_;
  ExchangeRivals rivals_;
  bool has_near_ = false;  // of any rank
  bool has_far_ = false;
  bool fits_mpi_ = false;
  int far_rank_ = 0;  // the other end of the ping-pong; 0: there is none
  std::int64_t wrong_ = 0;
  RowCounters moved_;  // in the last turn, by this rank
  std::vector<Turn> turns_;
};

ExchangeRun::ExchangeRun(const Runtime& runtime, MpiRivals& mpi, const ExchangeBed::Case& what,
                         const ExchangeLoads& loads)
    : runtime_(runtime),
      world_(runtime.world()),
      mpi_(mpi),
      bed_(world_, what),
      rivals_(mpi, loads, world_.rank(), bed_.matrices()),
      has_far_(loads.num_nodes() > 1) {
  has_near_ = most(rivals_.near_bytes()) > 0;
  fits_mpi_ = most(rivals_.most_bytes()) <= kMostMpiBytes;
  if (world_.size() > 1) far_rank_ = 1;
  for (int rank = world_.size() - 1; rank > 0; --rank) {
    if (loads.node_of(rank) != loads.node_of(0)) far_rank_ = rank;
  }
}

std::int64_t ExchangeRun::most(std::int64_t value) const {
  const std::vector<std::int64_t> all = gather_values(world_, value);
  return *std::ranges::max_element(all);
}

/// The largest of each over all ranks.
Turn slowest(Communicator& world, const Turn& own) {
  Turn most = own;
  for (const Turn& turn : gather_values(world, own)) {
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], turn[i]);
  }
  return most;
}

Turn ExchangeRun::take_turn() {
  Turn turn{};
  turn[kTurn] = time_once([&] {
    bed_.prepare();
    world_.barrier();
    const RowCounters before = bed_.moved();
    const ExchangeBed::Times times = bed_.exchange();
    moved_ = bed_.moved().since(before);
    turn[kDispatch] = times.dispatch;
    turn[kCombine] = times.combine;
    turn[kExchange] = times.dispatch + times.combine;
    wrong_ += bed_.count_wrong();
    time_rivals(turn);
  });
  return slowest(world_, turn);
}

void ExchangeRun::time_rivals(Turn& turn) {
  const auto time = [&](bool is_wanted, const std::function<void()>& rival) {
    world_.barrier();
    return is_wanted ? time_once(rival) : 0;
  };
  turn[kCopies] = time(has_near_, [&] { rivals_.copy_near(); });
  turn[kAllToAll] = time(fits_mpi_, [&] { rivals_.all_to_all(); });
  turn[kStream] = time(has_far_ && fits_mpi_, [&] { rivals_.stream_far(); });
  turn[kPingPong] = time(far_rank_ > 0, [&] { mpi_.ping_pong(0, far_rank_, kPingPongs); });
  turn[kPingPong] /= 2 * kPingPongs;
}

double ExchangeRun::microseconds(Timed what, double share) const {
  std::vector<double> seconds;
  for (const Turn& turn : turns_) seconds.push_back(turn[what]);
  return 1e6 * not_exceeded_by(share, std::move(seconds));
}

ExchangeTimes ExchangeRun::measure() {
  std::vector<Turn> turns;
  const std::vector<double> counted =
      repeat(runtime_.options().seconds, [&] { return turns.emplace_back(take_turn())[kTurn]; });
  turns_.assign(turns.end() - std::ssize(counted), turns.end());
  const auto rival = [&](bool was_run, Timed what) {
    return was_run ? microseconds(what) : std::numeric_limits<double>::quiet_NaN();
  };
  std::array<std::int64_t, 3> sums = {wrong_, moved_.bytes_near, moved_.bytes_far};
  world_.sum(std::span<std::int64_t>(sums));
  return {.us = microseconds(kExchange),
          .us_p99 = microseconds(kExchange, 0.99),
          .dispatch_us = microseconds(kDispatch),
          .combine_us = microseconds(kCombine),
          .memcpy_us = rival(has_near_, kCopies),
          .alltoallv_us = rival(fits_mpi_, kAllToAll),
          .stream_us = rival(has_far_ && fits_mpi_, kStream),
          .pingpong_us = rival(far_rank_ > 0, kPingPong),
          .wrong = sums[0],
          .messages = most(moved_.messages),
          .bytes_near = sums[1],
          .bytes_far = sums[2]};
}

}  // namespace

ExchangeTimes measure_exchange(const Runtime& runtime, MpiRivals& mpi,
                               const ExchangeBed::Case& what, const ExchangeLoads& loads) {
  return ExchangeRun(runtime, mpi, what, loads).measure();
}

}  // namespace moesaic
