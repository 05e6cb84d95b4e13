#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "comm/communicator.h"
#include "src/generate/open_requests.h"
#include "src/generate/orders.h"
#include "src/generate/rank_sequences.h"
#include "src/generate/request.h"
#include "src/generate/schedule.h"
#include "src/model/transformer.h"

namespace moesaic {

struct StepOptions {
  /// Most tokens of one forward pass of a rank; sequences that generate have their token even if
  /// they are more.
  std::int64_t batch_tokens = 512;
  std::int64_t parallel = 8;  ///< sequences under way at a time on a rank
  /// For keys and values on a rank, within which sequences wait or give way (RankSequences).
  std::int64_t cache_bytes = KvPool::kNoLimit;
  /// What prompts have in common from the start is computed once on a rank.
  bool share_prefixes = true;
  /// A short prompt is not held up by a long one before it (RankOptions).
  bool short_prompts_first = false;
  /// Of rank 0, if texts are wanted; must outlive the engine.
  const Tokenizer* tokenizer = nullptr;
  /// Whether this rank has been asked to stop, asked once a step (Interruption::wanted).
  std::function<bool()> stop_wanted{};
};

/// What one step brought.
struct StepResult {
  std::vector<NewToken> tokens;    // rank 0
  std::vector<Finished> finished;  // rank 0
  std::vector<LogitsRows> logits;  // of the requests that this rank works on
  bool wants_logits = false;       // a request that is under way, on any rank, wants some
  bool dismissed = false;          // other ranks: rank 0 has let them go
  bool stop_wanted = false;        // a rank has been asked to stop; all learn it in one step
};

/// Work and time of all steps so far. A step's time, with what rank 0 does between two steps while
/// requests are open, is shared between prompts and generation by their rows on all ranks: the two
/// add up to the time that the requests took.
struct StepStatistics {
  std::int64_t steps = 0;  // with a forward pass
  PassWork work;           // of all ranks; a first token counts to its prompt
  double prompt_seconds = 0;
  double generate_seconds = 0;
  /// From the start of the first to the end of the last: more than the sum of both by the times
  /// without open requests.
  double wall_seconds = 0;
};

/// Runs requests, in steps that all ranks take together: a forward pass of each rank's sequences,
/// or of none. Requests come and go between any two steps, on rank 0 alone; a rank that is free
/// takes the next one (Schedule). What a request gets does not depend on its neighbours, its rank,
/// or when it came.
///
/// Rank 0 calls step() while it is busy(), and also while it is not, well before the communicator's
/// timeout passes, because the others wait for it in theirs; they give the core away meanwhile. All
/// other ranks call step() until it says that they are dismissed. Those that keep step with rank 0
/// by other means need not be dismissed. A step in which a rank has been asked to stop says so on
/// all ranks; what follows is the callers' business.
class StepEngine {
 public:
  /// `transformer` and `world` must outlive this. The same options everywhere, but the tokenizer.
  StepEngine(Transformer& transformer, Communicator& world, const StepOptions& options);

  /// Whether this is rank 0, to which requests come.
  [[nodiscard]] bool submits() const noexcept { return world_.rank() == 0; }
  /// A new request, which the next step knows of. Throws Error{usage} for one that cannot be run.
  /// Rank 0 only.
  RequestId submit(Request request);
  /// The next step ends the request, and tells so; nothing happens if it has ended. Rank 0 only.
  void cancel(RequestId id);
  /// The next step lets the other ranks go, until they call step() again. Rank 0 only.
  void dismiss();
  /// Whether requests have not ended. Rank 0 only.
  [[nodiscard]] bool busy() const noexcept { return open_.size() > 0; }
  /// How many more requests keep the ranks busy: as many as they work on at a time, and as many
  /// again that wait. Rank 0 only.
  [[nodiscard]] std::int64_t room() const noexcept;

  /// Whether the next step has work for any rank, as far as all ranks know after the last one: a
  /// request that a stop string has ended is not over for the others before the next step.
  [[nodiscard]] bool under_way() const noexcept { return schedule_.under_way(); }

  /// Collective over all ranks. Valid until the next step.
  const StepResult& step();

  /// What rank 0 says, on all ranks. Collective.
  [[nodiscard]] bool said_by_first(bool value);

  /// As this rank saw it.
  [[nodiscard]] const StepStatistics& statistics() const noexcept { return statistics_; }

 private:
  using Clock = std::chrono::steady_clock;
  void follow(Orders orders);
  void assign();
  /// The request has ended, or is not wanted any more.
  void forget(RequestId id);
  /// All ranks learn whether to stop.
  void share_stop();
  /// All ranks learn what became of all requests, and whether to stop. Returns the work of all
  /// ranks.
  PassWork share(const RankPass& pass);
  /// Log-probabilities that a token's news have at most, its own among them; 0: nobody wants any.
  [[nodiscard]] std::int64_t logprobs_width() const;
  void take(const SequenceNews& news, std::span<const TokenLogprob> logprobs);
  void count(const PassWork& work, Clock::time_point start);

  Communicator& world_;
  const Transformer& transformer_;
  StepOptions options_;
  Schedule schedule_;
  RankSequences sequences_;
  OpenRequests open_;  // rank 0
  Orders orders_;      // rank 0: for the next step
  RequestId next_id_ = 0;
  std::unordered_map<RequestId, Request> waiting_;               // not yet assigned
  std::unordered_map<RequestId, std::int64_t> logprobs_wanted_;  // of requests that want any
  std::unordered_set<RequestId> logits_wanted_;                  // the same
  StepResult result_;
  StepStatistics statistics_;
  Clock::time_point first_start_;  // of the first step with a forward pass
  Clock::time_point last_end_;     // of the last one
  bool goes_on_ = false;           // rank 0: it has left open requests
};

}  // namespace moesaic
