#include "src/generate/generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include "base/error.h"

namespace moesaic {
namespace {

/// A request that this rank works on.
struct Active {
  std::int64_t request;
  std::span<const std::int32_t> prompt;
  Sequence sequence;
  Sampler sampler;
  std::int32_t last_token = 0;  // once the prompt is processed

  [[nodiscard]] bool in_prompt() const {
    return sequence.size() < static_cast<std::int64_t>(prompt.size());
  }
};

struct NewToken {
  std::int32_t request = -1;
  std::int32_t token = 0;
};

/// All ranks step together: each runs a batch of its own sequences (or none) through the model, and
/// then all learn each other's new tokens, so that every rank knows when all is done.
class Run {
 public:
  Run(Transformer& transformer, Communicator& world,
      std::span<const std::vector<std::int32_t>> prompts, const GenerateOptions& options)
      : transformer_(transformer),
        pool_(transformer.config(), transformer.precision()),
        world_(world),
        prompts_(prompts),
        options_(options),
        result_{.completions = std::vector<Completion>(prompts.size()), .statistics = {}} {
    require(options.batch_tokens >= 1 && options.parallel >= 1, ErrorKind::usage,
            "--batch-size and --parallel must be at least 1, not {} and {}", options.batch_tokens,
            options.parallel);
    open_ = options.max_new_tokens > 0 ? static_cast<std::int64_t>(prompts.size()) : 0;
    for (std::size_t i = static_cast<std::size_t>(world.rank()); i < prompts.size();
         i += static_cast<std::size_t>(world.size())) {
      waiting_.push_back(static_cast<std::int64_t>(i));
    }
  }

  GenerateResult run(const TokenCallback& on_token) {
    while (open_ > 0) {
      const auto start = std::chrono::steady_clock::now();
      admit();
      const std::vector<NewToken> mine = forward();
      const bool prompt_step = share(mine, on_token);
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      (prompt_step ? result_.statistics.prompt_seconds : result_.statistics.generate_seconds) +=
          seconds;
    }
    return std::move(result_);
  }

 private:
  void admit() {
    while (!waiting_.empty() && static_cast<std::int64_t>(active_.size()) < options_.parallel) {
      const std::int64_t request = waiting_.front();
      waiting_.pop_front();
      const std::vector<std::int32_t>& prompt = prompts_[static_cast<std::size_t>(request)];
      const auto length = static_cast<std::int64_t>(prompt.size());
      active_.push_back({.request = request,
                         .prompt = prompt,
                         .sequence = pool_.make_sequence(length),
                         .sampler = Sampler(options_.sampling, static_cast<std::uint64_t>(request),
                                            *transformer_.compute().vector)});
    }
  }

  /// One step: a token for every sequence that generates, and as much of the prompts as the batch
  /// takes.
  std::vector<NewToken> forward() {
    std::vector<SequenceChunk> chunks;
    std::vector<Active*> sampled;
    std::int64_t room = options_.batch_tokens;
    prompt_tokens_ = 0;
    for (Active& sequence : active_) {
      if (sequence.in_prompt()) continue;
      chunks.push_back({.sequence = &sequence.sequence, .tokens = {&sequence.last_token, 1}});
      sampled.push_back(&sequence);
      --room;
    }
    for (Active& sequence : active_) {
      if (!sequence.in_prompt() || room <= 0) continue;
      const auto rest = sequence.prompt.subspan(static_cast<std::size_t>(sequence.sequence.size()));
      const auto tokens = rest.first(std::min(rest.size(), static_cast<std::size_t>(room)));
      const bool ends = tokens.size() == rest.size();
      using Logits = SequenceChunk::Logits;
      chunks.push_back({.sequence = &sequence.sequence,
                        .tokens = tokens,
                        .logits = ends ? Logits::last : Logits::none});
      if (ends) sampled.push_back(&sequence);
      room -= static_cast<std::int64_t>(tokens.size());
      prompt_tokens_ += static_cast<std::int64_t>(tokens.size());
    }
    const MatrixView<const float> logits = transformer_.forward(chunks);
    std::vector<NewToken> tokens(sampled.size());
    transformer_.compute().pool->for_each(std::ssize(sampled), 1, [&](std::int64_t row) {
      const auto i = static_cast<std::size_t>(row);
      Active& sequence = *sampled[i];
      sequence.last_token = sequence.sampler.sample(logits.row(row));
      tokens[i] = {narrow<std::int32_t>(sequence.request), sequence.last_token};
    });
    return tokens;
  }

  /// Tells all ranks this rank's new tokens and takes up theirs, in rank order. Returns whether any
  /// rank processed a prompt.
  bool share(const std::vector<NewToken>& mine, const TokenCallback& on_token) {
    // One more entry than there can be tokens says how much of the prompts was processed.
    std::vector<NewToken> message(static_cast<std::size_t>(options_.parallel) + 1);
    message[0] = {0, narrow<std::int32_t>(prompt_tokens_)};
    std::ranges::copy(mine, message.begin() + 1);
    std::vector<NewToken> all(message.size() * static_cast<std::size_t>(world_.size()));
    world_.all_gather(std::as_bytes(std::span(message)), std::as_writable_bytes(std::span(all)));
    bool prompt_step = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % message.size() == 0) {
        result_.statistics.prompt_tokens += all[i].token;
        prompt_step = prompt_step || all[i].token > 0;
      } else if (all[i].request >= 0) {
        take(all[i], on_token);
      }
    }
    return prompt_step;
  }

  void take(const NewToken& entry, const TokenCallback& on_token) {
    Completion& completion = result_.completions[static_cast<std::size_t>(entry.request)];
    const bool stop =
        std::ranges::find(options_.stop_tokens, entry.token) != options_.stop_tokens.end();
    ++result_.statistics.generated_tokens;
    if (stop) {
      completion.reason = StopReason::end_of_sequence;
    } else {
      completion.tokens.push_back(entry.token);
      if (on_token) on_token(entry.request, entry.token);
    }
    if (stop || static_cast<std::int64_t>(completion.tokens.size()) == options_.max_new_tokens) {
      --open_;
      std::erase_if(active_, [&](const Active& active) { return active.request == entry.request; });
    }
  }

  Transformer& transformer_;
  KvPool pool_;
  Communicator& world_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const GenerateOptions& options_;
  GenerateResult result_;
  std::int64_t open_ = 0;  // requests of all ranks that are not finished
  std::deque<std::int64_t> waiting_;
  std::vector<Active> active_;
  std::int64_t prompt_tokens_ = 0;  // of this rank in this step
};

}  // namespace

GenerateResult generate(Transformer& transformer, Communicator& world,
                        std::span<const std::vector<std::int32_t>> prompts,
                        const GenerateOptions& options, const TokenCallback& on_token) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    require(!prompts[i].empty(), ErrorKind::usage, "prompt {} is empty", i);
  }
  return Run(transformer, world, prompts, options).run(on_token);
}

}  // namespace moesaic
