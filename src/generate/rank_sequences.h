#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "src/generate/kept_sequences.h"
#include "src/generate/request.h"
#include "src/generate/sampler.h"
#include "src/generate/token_logprobs.h"
#include "src/model/transformer.h"

namespace moesaic {

/// Logits of some positions of a request, where they were computed.
struct LogitsRows {
  RequestId request = 0;
  std::int64_t first = 0;          // position
  MatrixView<const float> logits;  // [positions, vocab]
  /// The request's tokens so far: tokens[p + 1], if there, is what the logits of p are about.
  std::span<const std::int32_t> tokens;
  std::optional<std::int64_t> logprobs{};  // Request::logprobs
};

/// What a step made of one request. Travels between ranks as it stands.
struct SequenceNews {
  static constexpr std::int32_t kNoToken = -1;
  static constexpr std::int64_t kOutputMatrix = -2;  // instead of a layer
  enum class End : std::int32_t { none, end_of_sequence, length, damaged };

  RequestId request = 0;
  std::int32_t token = kNoToken;
  End end = End::none;
  std::int64_t position = 0;  // End::damaged: of the first token whose values are not finite
  std::int64_t layer = 0;     // that made them so, FiniteRows::kEmbedding or kOutputMatrix
};

/// The work of one or more forward passes. Travels between ranks as it stands.
struct PassWork {
  std::int64_t prompt_rows = 0;       // tokens of prompts that were fed, and what is computed again
  std::int64_t generation_rows = 0;   // other tokens that were fed
  std::int64_t shared_positions = 0;  // of prompts, that were not fed since others had them
  std::int64_t dropped = 0;           // sequences that gave way to older ones

  PassWork& operator+=(const PassWork& other);
};

/// One forward pass of one rank. `logits` holds until the next.
struct RankPass {
  std::vector<SequenceNews> news;
  std::vector<std::vector<TokenLogprob>> logprobs;  // [news]; empty where nobody wants them
  std::vector<LogitsRows> logits;
  PassWork work;
};

struct RankOptions {
  static constexpr std::int64_t kMostBeginnings = 4;

  /// Most tokens of a forward pass; sequences that generate have their token even if they are more.
  std::int64_t batch_tokens = 512;
  std::int64_t cache_bytes = KvPool::kNoLimit;  ///< of keys and values
  /// A request that begins as another one on this rank takes over what that one has computed; as
  /// many that have ended are kept for it, and as many beginnings with a state (up to
  /// kMostBeginnings). 0: nothing is shared.
  std::int64_t kept_sequences = 0;
  /// Of prompts under way those with the fewest tokens left go first; the oldest one, which they
  /// would hold up for ever, has half of what a pass leaves to prompts.
  bool short_prompts_first = false;
};

/// The requests that one rank works on, in the order of their arrival.
///
/// Where layers keep a state, which belongs to one position, a prompt stops where it parts from
/// others, and its state there is kept for those that begin alike.
///
/// Keys and values take memory as they are used. Where it is short, sequences that have ended are
/// forgotten first, then such beginnings. A request begins when all its tokens fit beside those
/// under way; an older one that needs a page makes the youngest give way, which is computed again
/// later, with the same bits.
class RankSequences {
 public:
  RankSequences(Transformer& transformer, const RankOptions& options);

  /// Throws Error{usage} if the request could never have the memory that it may need.
  void check(const Request& request) const;
  void add(RequestId id, Request request);
  /// The request is not wanted any more. Nothing happens if it is not here.
  void remove(RequestId id);

  /// One token for every sequence that generates, and as much of the prompts, in the order of
  /// arrival or of length, as the batch takes. Requests that end with it are gone afterwards.
  /// Collective over the experts' group, with whatever there is to do.
  [[nodiscard]] const RankPass& forward();

 private:
  struct Active {
    RequestId id = 0;
    Request request;  // its tokens become prompt and continuation
    std::int64_t prompt_tokens = 0;
    Sequence cache;
    std::optional<Sampler> sampler;  // if anything is to be sampled
    std::int64_t logits_from = 0;    // logits of positions before it have been handed out
    std::int64_t fork = 0;           // where a pass ends, so that others can begin there
    bool ended = false;
    bool damaged = false;  // and therefore ended

    [[nodiscard]] std::int64_t known() const { return std::ssize(request.tokens); }
    /// Tokens that are known and not yet computed.
    [[nodiscard]] std::int64_t rest() const { return known() - cache.size(); }
    [[nodiscard]] bool comes_to_fork() const { return fork > cache.size(); }
    /// Those of them that a pass may take.
    [[nodiscard]] std::int64_t next_rows() const {
      return comes_to_fork() ? fork - cache.size() : rest();
    }
    /// How many positions it could take over: it computes the last one, and those with logits.
    [[nodiscard]] std::int64_t most_shared() const { return std::min(known() - 1, logits_from); }
    [[nodiscard]] bool generates() const { return cache.size() >= prompt_tokens && rest() == 1; }
  };
  /// Rows of one sequence in this pass.
  struct Part {
    Active* sequence = nullptr;
    std::int64_t first = 0;  // position
    std::int64_t count = 0;
    SequenceChunk::Logits logits = SequenceChunk::Logits::none;

    [[nodiscard]] std::int64_t end() const { return first + count; }
    [[nodiscard]] std::int64_t logits_begin() const {  // position
      using Logits = SequenceChunk::Logits;
      return logits == Logits::all ? first : logits == Logits::last ? end() - 1 : end();
    }
  };
  enum class GiveWay { ended_ones, younger_ones };
  enum class Begin { done, waits_for_memory, waits_for_another };
  /// What a sequence has in common with another one, from the start.
  struct Beginning {
    const Sequence* of = nullptr;
    std::int64_t positions = 0;
    bool grows = false;  // an older one that goes first is about to compute more
  };

  /// That a request needs at most: the last token is not fed.
  [[nodiscard]] static std::int64_t most_positions(std::int64_t prompt_tokens,
                                                   const Request& request);
  void retire(Active& sequence);
  void plan();
  void plan_generation();
  void plan_prompts();
  void plan_short_prompts();
  [[nodiscard]] std::int64_t room_for_prompts() const {
    return options_.batch_tokens - pass_.work.generation_rows;
  }
  /// Nothing could go on: all others give way to the oldest.
  void plan_oldest();
  void add_part(Active& sequence, std::int64_t count);
  /// As many of its tokens as there are and may be; how many there were memory for.
  std::int64_t add_prompt(std::size_t index, std::int64_t most);
  [[nodiscard]] Begin begin(std::size_t index);
  /// Whether it has begun, or does now. `is_full`: one waits for memory, and none that came later
  /// overtakes it.
  [[nodiscard]] bool has_begun(std::size_t index, bool& is_full);
  [[nodiscard]] Beginning find_beginning(std::size_t index) const;
  /// Where the sequence next parts from others that wait, or that it could not begin as, if it is
  /// worth a state there; 0: nowhere.
  [[nodiscard]] std::int64_t next_fork(std::size_t index) const;
  /// Keeps the state of a sequence that has come to its fork, if there is memory for it.
  void keep_beginning(Active& sequence);
  /// Gives the memory of one sequence back that nobody works on; false if there is none.
  bool forget_one() { return ended_.drop_oldest() || beginnings_.drop_oldest(); }
  /// Whether prompts of these lengths can have positions in common.
  [[nodiscard]] bool can_share(std::int64_t prompt_a, std::int64_t prompt_b) const {
    return !pool_.depends_on_prompt_length() || prompt_a == prompt_b;
  }
  /// Makes room for `positions` of a sequence; whether there is enough.
  [[nodiscard]] bool make_room(std::size_t index, std::int64_t positions, GiveWay who);
  void drop(Active& sequence);
  [[nodiscard]] std::int64_t free_bytes() const { return pool_.max_bytes() - pool_.bytes(); }
  /// Ends the sequences of this pass with values that are not finite.
  [[nodiscard]] std::vector<SequenceNews> end_damaged();
  /// `rows` are the logits of a part: those that the request wants are handed out.
  void hand_out(const Part& part, MatrixView<const float> rows);
  /// What follows once all known tokens of a sequence are computed; `logits` of its last one.
  [[nodiscard]] SequenceNews go_on(Active& sequence, std::span<const float> logits) const;

  Transformer& transformer_;
  RankOptions options_;
  KvPool pool_;
  KeptSequences ended_;
  KeptSequences beginnings_;  // with states
  std::vector<Active> sequences_;
  std::vector<std::size_t> prompts_;  // that go on, shortest first
  std::vector<Part> parts_;
  std::vector<SequenceChunk> chunks_;
  RankPass pass_;
};

}  // namespace moesaic
