#include "src/generate/step_engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr RequestId kNobody = -1;

void check_request(const Request& request, std::int64_t vocab_size, bool has_tokenizer) {
  require(!request.tokens.empty(), ErrorKind::usage, "a prompt is empty");
  for (const std::int32_t token : request.tokens) {
    require(token >= 0 && token < vocab_size, ErrorKind::usage,
            "token id {} is outside the model's vocabulary of {}", token, vocab_size);
  }
  require(request.max_new_tokens >= 0 && request.logits_from >= 0, ErrorKind::usage,
          "a request for {} tokens, with logits from position {}", request.max_new_tokens,
          request.logits_from);
  require(request.stop_strings.empty() || has_tokenizer, ErrorKind::usage,
          "stop strings need a tokenizer");
  check_sampling(request.sampling);
}

}  // namespace

StepEngine::StepEngine(Transformer& transformer, Communicator& world, const StepOptions& options)
    : world_(world),
      transformer_(transformer),
      options_(options),
      schedule_(world.size(), options.parallel),
      sequences_(transformer, options.batch_tokens),
      open_(options.tokenizer) {}

RequestId StepEngine::submit(Request request) {
  require(world_.rank() == 0, ErrorKind::internal, "a request on rank {}", world_.rank());
  check_request(request, transformer_.config().vocab_size, options_.tokenizer != nullptr);
  const RequestId id = next_id_++;
  open_.open(id, request);
  orders_.submitted.push_back({id, std::move(request)});
  return id;
}

void StepEngine::cancel(RequestId id) {
  if (open_.contains(id)) orders_.dropped.push_back(id);
}

void StepEngine::dismiss() {
  orders_.dismissed = true;
}

std::int64_t StepEngine::room() const noexcept {
  return 2 * options_.parallel * world_.size() - open_.size();
}

const StepResult& StepEngine::step() {
  Clock::time_point start = Clock::now();
  result_ = {};
  Orders orders = std::exchange(orders_, {});
  broadcast_orders(world_, orders);
  if (world_.rank() != 0) start = Clock::now();  // they may have waited for work
  follow(std::move(orders));
  assign();
  if (!schedule_.under_way()) return result_;
  const RankPass& pass = sequences_.forward();
  result_.logits = pass.logits;
  count(share(pass), start);
  return result_;
}

void StepEngine::follow(Orders orders) {
  for (auto& [id, request] : orders.submitted) {
    schedule_.add(id, static_cast<std::int64_t>(request.tokens.size()));
    waiting_.emplace(id, std::move(request));
  }
  for (const RequestId id : orders.dropped) {
    schedule_.remove(id);
    sequences_.remove(id);
    waiting_.erase(id);
    if (auto finished = open_.cancel(id)) result_.finished.push_back(std::move(*finished));
  }
  result_.dismissed = orders.dismissed;
}

void StepEngine::assign() {
  for (const auto& [id, rank] : schedule_.assign()) {
    auto request = waiting_.extract(id);
    if (rank == world_.rank()) sequences_.add(id, std::move(request.mapped()));
  }
}

StepEngine::Rows StepEngine::share(const RankPass& pass) {
  // The first entry of a rank says how many rows it has fed.
  const auto length = static_cast<std::size_t>(1 + schedule_.most_on_a_rank());
  std::vector<SequenceNews> mine(length);
  mine[0] = {.request = pass.prompt_rows, .token = narrow<std::int32_t>(pass.generation_rows)};
  std::ranges::copy(pass.news, mine.begin() + 1);
  for (std::size_t i = pass.news.size() + 1; i < length; ++i) mine[i].request = kNobody;
  std::vector<SequenceNews> all(length * static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  Rows rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % length == 0) {
      rows.prompt += all[i].request;
      rows.generation += all[i].token;
    } else if (all[i].request != kNobody) {
      take(all[i]);
    }
  }
  return rows;
}

void StepEngine::take(const SequenceNews& news) {
  const bool ended = news.end != SequenceNews::End::none;
  if (ended) schedule_.remove(news.request);
  if (world_.rank() != 0) return;
  auto [token, finished] = open_.take(news);
  if (token) result_.tokens.push_back(std::move(*token));
  if (!finished) return;
  if (!ended) orders_.dropped.push_back(news.request);  // by a stop string, which rank 0 alone saw
  result_.finished.push_back(std::move(*finished));
}

void StepEngine::count(const Rows& rows, Clock::time_point start) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double prompt_share =
      static_cast<double>(rows.prompt) / static_cast<double>(rows.prompt + rows.generation);
  ++statistics_.steps;
  statistics_.prompt_tokens += rows.prompt;
  statistics_.generated_tokens += rows.generation;
  statistics_.prompt_seconds += seconds * prompt_share;
  statistics_.generate_seconds += seconds * (1 - prompt_share);
}

}  // namespace moesaic
