#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/generate/request.h"
#include "src/model/transformer.h"

namespace moesaic {

/// Logits of some positions of a request, where they were computed.
struct LogitsRows {
  RequestId request = 0;
  std::int64_t first = 0;          // position
  MatrixView<const float> logits;  // [positions, vocab]
  /// The request's tokens so far: tokens[p + 1], if there, is what the logits of p are about.
  std::span<const std::int32_t> tokens;
};

/// What a step made of one request. Travels between ranks as it stands.
struct SequenceNews {
  static constexpr std::int32_t kNoToken = -1;
  enum class End : std::int32_t { none, end_of_sequence, length };

  RequestId request = 0;
  std::int32_t token = kNoToken;
  End end = End::none;
};

/// One forward pass of one rank. `logits` holds until the next.
struct RankPass {
  std::vector<SequenceNews> news;
  std::vector<LogitsRows> logits;
  std::int64_t prompt_rows = 0;      // tokens of prompts that were fed
  std::int64_t generation_rows = 0;  // other tokens that were fed
};

/// The requests that one rank works on.
class RankSequences {
 public:
  /// `batch_tokens` of a forward pass, prompts and continuations together.
  RankSequences(Transformer& transformer, std::int64_t batch_tokens);

  /// Throws Error{resource} if there is no memory for its keys and values.
  void add(RequestId id, Request request);
  /// The request is not wanted any more. Nothing happens if it is not here.
  void remove(RequestId id);

  /// One token for every sequence that generates, and as much of the prompts, in the order of
  /// arrival, as the batch takes. Requests that end with it are gone afterwards. Collective over
  /// the experts' group, with whatever there is to do.
  [[nodiscard]] const RankPass& forward();

 private:
  struct Active {
    RequestId id = 0;
    Request request;  // its tokens become prompt and continuation
    std::int64_t prompt_tokens = 0;
    Sequence cache;
    std::optional<Sampler> sampler;  // if anything is to be sampled
    bool ended = false;

    /// Tokens that are known and not yet computed.
    [[nodiscard]] std::int64_t rest() const {
      return static_cast<std::int64_t>(request.tokens.size()) - cache.size();
    }
    [[nodiscard]] bool in_prompt() const { return cache.size() < prompt_tokens; }
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

  void plan();
  void plan(Active& sequence, std::int64_t room);
  /// `rows` are the logits of a part: those that the request wants are handed out.
  void hand_out(const Part& part, MatrixView<const float> rows);
  /// What follows once all known tokens of a sequence are computed; `logits` of its last one.
  [[nodiscard]] SequenceNews go_on(Active& sequence, std::span<const float> logits) const;

  Transformer& transformer_;
  KvPool pool_;
  std::int64_t batch_tokens_;
  std::vector<Active> sequences_;
  std::vector<Part> parts_;
  std::vector<SequenceChunk> chunks_;
  RankPass pass_;
};

}  // namespace moesaic
