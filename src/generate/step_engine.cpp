#include "src/generate/step_engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr RequestId kNobody = -1;

/// What a rank's message to all begins with.
struct Header {
  PassWork work;
  std::int64_t stop_wanted = 0;
};

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
  require(request.logprobs.value_or(0) >= 0, ErrorKind::usage,
          "log-probabilities of {} likeliest tokens", request.logprobs.value_or(0));
  check_sampling(request.sampling, vocab_size);
}

}  // namespace

StepEngine::StepEngine(Transformer& transformer, Communicator& world, const StepOptions& options)
    : world_(world),
      transformer_(transformer),
      options_(options),
      schedule_(world.size(), options.parallel),
      sequences_(transformer, {.batch_tokens = options.batch_tokens,
                               .cache_bytes = options.cache_bytes,
                               .kept_sequences = options.share_prefixes ? options.parallel : 0,
                               .short_prompts_first = options.short_prompts_first}),
      open_(options.tokenizer) {}

RequestId StepEngine::submit(Request request) {
  require(world_.rank() == 0, ErrorKind::internal, "a request on rank {}", world_.rank());
  check_request(request, transformer_.config().vocab_size, options_.tokenizer != nullptr);
  sequences_.check(request);
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
  Clock::time_point start = goes_on_ ? last_end_ : Clock::now();
  result_ = {};
  Orders orders = std::exchange(orders_, {});
  broadcast_orders(world_, orders);
  if (!submits()) start = Clock::now();  // they may have waited for work
  follow(std::move(orders));
  assign();
  goes_on_ = false;
  if (!schedule_.under_way()) {
    if (!result_.dismissed) share_stop();
    return result_;
  }
  const RankPass& pass = sequences_.forward();
  result_.logits = pass.logits;
  result_.wants_logits = !logits_wanted_.empty();
  count(share(pass), start);
  goes_on_ = submits() && busy();
  return result_;
}

bool StepEngine::said_by_first(bool value) {
  std::int64_t said = value ? 1 : 0;
  world_.broadcast(std::as_writable_bytes(std::span(&said, 1)), 0);
  return said != 0;
}

void StepEngine::follow(Orders orders) {
  for (auto& [id, request] : orders.submitted) {
    schedule_.add(id, request);
    if (request.logprobs) logprobs_wanted_[id] = *request.logprobs;
    if (request.logits_from != Request::kNoLogits) logits_wanted_.insert(id);
    waiting_.emplace(id, std::move(request));
  }
  for (const RequestId id : orders.dropped) {
    forget(id);
    sequences_.remove(id);
    waiting_.erase(id);
    if (auto finished = open_.cancel(id)) result_.finished.push_back(std::move(*finished));
  }
  result_.dismissed = orders.dismissed;
}

void StepEngine::forget(RequestId id) {
  schedule_.remove(id);
  logprobs_wanted_.erase(id);
  logits_wanted_.erase(id);
}

void StepEngine::assign() {
  for (const auto& [id, rank] : schedule_.assign()) {
    auto request = waiting_.extract(id);
    if (rank == world_.rank()) sequences_.add(id, std::move(request.mapped()));
  }
}

void StepEngine::share_stop() {
  if (!options_.stop_wanted) return;
  std::int64_t wanted = options_.stop_wanted() ? 1 : 0;
  world_.max(std::span(&wanted, 1));
  result_.stop_wanted = wanted != 0;
}

std::int64_t StepEngine::logprobs_width() const {
  std::int64_t width = 0;
  for (const auto& [id, count] : logprobs_wanted_) width = std::max(width, count + 1);
  return std::min(width, transformer_.config().vocab_size + 1);
}

PassWork StepEngine::share(const RankPass& pass) {
  // A rank's message: a header, its news and their log-probabilities, and nobody's to fill up to
  // the length of all messages.
  const auto most = static_cast<std::size_t>(schedule_.most_on_a_rank());
  const auto width = static_cast<std::size_t>(logprobs_width());
  Header header{.work = pass.work, .stop_wanted = options_.stop_wanted && options_.stop_wanted()};
  std::vector<SequenceNews> news = pass.news;
  news.resize(most, {.request = kNobody});
  std::vector<TokenLogprob> logprobs(most * width, {.token = SequenceNews::kNoToken});
  for (std::size_t i = 0; i < pass.logprobs.size(); ++i) {
    std::ranges::copy(pass.logprobs[i], logprobs.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const std::array parts = {std::as_writable_bytes(std::span(&header, 1)),
                            std::as_writable_bytes(std::span(news)),
                            std::as_writable_bytes(std::span(logprobs))};
  std::vector<std::byte> mine;
  for (const auto& part : parts) mine.insert(mine.end(), part.begin(), part.end());
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(world_.size()));
  world_.all_gather(mine, all);
  PassWork sum;
  for (std::span<const std::byte> rest = all; !rest.empty();) {
    for (const auto& part : parts) {
      std::ranges::copy(rest.first(part.size()), part.begin());
      rest = rest.subspan(part.size());
    }
    sum += header.work;
    result_.stop_wanted |= header.stop_wanted != 0;
    for (std::size_t i = 0; i < most; ++i) {
      if (news[i].request != kNobody) take(news[i], std::span(logprobs).subspan(i * width, width));
    }
  }
  return sum;
}

void StepEngine::take(const SequenceNews& news, std::span<const TokenLogprob> logprobs) {
  const bool ended = news.end != SequenceNews::End::none;
  if (ended) forget(news.request);
  if (world_.rank() != 0) return;
  auto [token, finished] = open_.take(news, logprobs);
  if (token) result_.tokens.push_back(std::move(*token));
  if (!finished) return;
  if (!ended) orders_.dropped.push_back(news.request);  // by a stop string, which rank 0 alone saw
  result_.finished.push_back(std::move(*finished));
}

void StepEngine::count(const PassWork& work, Clock::time_point start) {
  if (statistics_.steps == 0) first_start_ = start;
  last_end_ = Clock::now();
  statistics_.wall_seconds = std::chrono::duration<double>(last_end_ - first_start_).count();
  const double seconds = std::chrono::duration<double>(last_end_ - start).count();
  const double prompt_share = static_cast<double>(work.prompt_rows) /
                              static_cast<double>(work.prompt_rows + work.generation_rows);
  ++statistics_.steps;
  statistics_.work += work;
  statistics_.prompt_seconds += seconds * prompt_share;
  statistics_.generate_seconds += seconds * (1 - prompt_share);
}

}  // namespace moesaic
