#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/input/bad_count.h"
#include "launch/input/prompts.h"
#include "launch/input/request_fields.h"
#include "src/generate/request.h"

namespace moesaic {

/// What the requests of a job have in common, as far as their lines say nothing else.
struct RequestDefaults {
  SamplingOptions sampling{};
  std::int64_t max_tokens = 128;  // -1: until the context is full, but at least one
  std::int64_t samples = 1;       // of each prompt
  std::optional<std::int64_t> logprobs{};
  std::vector<std::string> stop{};
  std::vector<std::int64_t> stop_tokens{};  // of the model
  bool ignore_eos = false;
  std::int64_t context_tokens = 0;
  std::int64_t vocab_size = 0;
};

/// A prompt as all its samples have it, and how many they are.
struct SampledRequest {
  Request first;  // the request of its first sample
  std::int64_t samples = 1;

  /// That of another one: the same but for its stream of random numbers.
  [[nodiscard]] Request sample(std::int64_t number) const;
};

/// The request of prompt number `index` with these tokens. Its stream is the number, or 0 if the
/// line has a seed of its own: then the text does not depend on where the line stands. Throws
/// Error{usage} for options out of range; whether it fits into the context is not looked at.
[[nodiscard]] SampledRequest make_request(const RequestFields& fields,
                                          std::vector<std::int32_t> tokens, std::int64_t index,
                                          const RequestDefaults& defaults);

/// The requests of a job: samples of prompt 0, then of prompt 1, and so on. They are made when they
/// are wanted; a million prompts take little more than their texts and tokens. Prompts whose
/// requests are done with are forgotten: standard inputs go on for days.
class RequestList {
 public:
  explicit RequestList(RequestDefaults defaults) : defaults_(std::move(defaults)) {}

  /// The next prompt. Throws Error{usage} that names the prompt, and does not add it, for options
  /// out of range, or if `check`, called with the tokens of prompt and continuation, throws.
  void add(const Prompt& prompt, std::vector<std::int32_t> tokens,
           const std::function<void(std::int64_t tokens, std::int64_t new_tokens)>& check);
  /// A prompt that has an error, in the place of the next: one request that is not to be asked for.
  void add_bad(Prompt prompt);

  /// Prompts that are added from now on have this context.
  void set_context(std::int64_t tokens) noexcept { defaults_.context_tokens = tokens; }

  struct Place {
    std::int64_t prompt = 0;
    std::int64_t sample = 0;
    std::int64_t samples = 1;  // of this prompt
  };
  // Of requests by their numbers, as long as their prompt is kept.
  /// Where a request stands.
  [[nodiscard]] Place place(std::int64_t number) const;
  [[nodiscard]] Request request(std::int64_t number) const;
  [[nodiscard]] const Prompt& prompt(std::int64_t number) const { return entry(number).prompt; }
  [[nodiscard]] std::int64_t prompt_tokens(std::int64_t number) const {
    return std::ssize(entry(number).tokens);
  }
  /// The request is done with. With the last one of a prompt the prompt is forgotten.
  void forget(std::int64_t number);
  /// Whether the request's prompt is not forgotten.
  [[nodiscard]] bool keeps(std::int64_t number) const { return find(number) != prompts_.end(); }
  /// Prompts that are not forgotten.
  [[nodiscard]] std::int64_t kept() const noexcept { return std::ssize(prompts_); }

  /// What has to be known before a model is loaded.
  struct Demand {
    std::int64_t prompts = 0;
    std::int64_t requests = 0;
    std::int64_t longest_prompt = 0;   // tokens
    std::int64_t longest_text = 0;     // the same with the most new ones
    std::int64_t most_new_tokens = 0;  // of all requests together
    std::int64_t most_samples = 1;     // of one prompt
  };
  [[nodiscard]] const Demand& demand() const noexcept { return demand_; }

  /// Of all that were added.
  [[nodiscard]] const BadCount& bad() const noexcept { return bad_; }

 private:
  struct Entry {
    Prompt prompt;
    std::vector<std::int32_t> tokens;
    std::int64_t index = 0;
    std::int64_t first = 0;  // number of its first request
    std::int64_t samples = 1;
    std::int64_t left = 1;  // of these, not done with
  };
  using Entries = std::map<std::int64_t, Entry>;  // by the number of the first request

  void add_entry(Entry entry);
  [[nodiscard]] Entries::const_iterator find(std::int64_t number) const;
  [[nodiscard]] const Entry& entry(std::int64_t number) const;

  RequestDefaults defaults_;
  Entries prompts_;
  Demand demand_;
  BadCount bad_;
};

}  // namespace moesaic
