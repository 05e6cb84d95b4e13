#include "tests/generate/engine_run.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "comm/thread_communicator.h"

namespace moesaic {

EngineSetup small_model(const std::string& name) {
  return {.directory = MOESAIC_TEST_DATA "/models/" + name, .isa = supported_isas().back()};
}

std::vector<std::int32_t> random_tokens(std::uint64_t seed, std::size_t length) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens(length);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 90);
  return tokens;
}

Request request_with(std::size_t common, std::uint64_t number, std::size_t own) {
  Request request;
  request.tokens = random_tokens(0, common);
  const std::vector<std::int32_t> rest = random_tokens(number + 1, own);
  request.tokens.insert(request.tokens.end(), rest.begin(), rest.end());
  request.max_new_tokens = 2;
  request.stream = number;
  request.sampling = {.temperature = 0.9, .top_k = 30, .top_p = 0.95, .seed = 3};
  return request;
}

Request request_number(std::uint64_t index) {
  std::mt19937_64 random(index + 1);
  Request request;
  request.tokens.resize(1 + random() % 24);
  for (std::int32_t& token : request.tokens) token = static_cast<std::int32_t>(random() % 90);
  request.max_new_tokens = 1 + static_cast<std::int64_t>(random() % 12);
  request.sampling = {.temperature = random() % 3 == 0 ? 0 : 0.9,
                      .top_k = static_cast<std::int64_t>(random() % 30),
                      .top_p = 0.9,
                      .seed = random() % 4};
  request.stream = random();
  if (random() % 2 == 0) request.stop_tokens = {static_cast<std::int64_t>(random() % 90), 7};
  if (random() % 3 == 0) request.sampling.min_p = 0.3;
  if (random() % 3 == 0) {
    request.sampling.repetition_penalty = 1.2;
    request.sampling.frequency_penalty = 0.1;
    request.sampling.presence_penalty = 0.3;
    request.sampling.penalty_last_n = static_cast<std::int64_t>(random() % 20) - 1;
  }
  if (random() % 4 == 0) request.sampling.logit_bias = {{static_cast<std::int32_t>(index % 90), 3}};
  if (random() % 3 == 0) request.logprobs = static_cast<std::int64_t>(random() % 5);
  if (random() % 3 == 0) request.group = static_cast<std::int64_t>(random() % 3);
  return request;
}

std::vector<std::vector<std::int32_t>> tokens_alone(std::size_t count) {
  std::vector<std::vector<std::int32_t>> tokens;
  run_engine(1, small_model(), {}, [&](EngineRun& run) {
    for (std::size_t i = 0; i < count; ++i) {
      const RequestId id = run.submit(request_number(i));
      run.finish();
      tokens.push_back(run.of(id).tokens);
    }
  });
  return tokens;
}

void EngineRun::step() {
  const StepResult& result = engine_.step();
  tokens_.insert(tokens_.end(), result.tokens.begin(), result.tokens.end());
  finished_.insert(finished_.end(), result.finished.begin(), result.finished.end());
}

bool EngineRun::has_finished(RequestId id) const {
  return std::ranges::find(finished_, id, &Finished::request) != finished_.end();
}

const Finished& EngineRun::of(RequestId id) const {
  const auto found = std::ranges::find(finished_, id, &Finished::request);
  if (found == finished_.end()) throw std::out_of_range("the request has not finished");
  return *found;
}

std::vector<std::int32_t> EngineRun::told_tokens(RequestId id) const {
  std::vector<std::int32_t> result;
  for (const NewToken& token : tokens_) {
    if (token.request == id) result.push_back(token.token);
  }
  return result;
}

std::string EngineRun::told_text(RequestId id) const {
  std::string text;
  for (const NewToken& token : tokens_) {
    if (token.request == id) text += token.text;
  }
  return text + of(id).rest;
}

void run_engine(int ranks, const EngineSetup& model, const StepOptions& options,
                const std::function<void(EngineRun& run)>& body) {
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine loaded(model, world);
    StepEngine engine(loaded.transformer(), world, options);
    if (world.rank() != 0) {
      while (!engine.step().dismissed) continue;
      return;
    }
    EngineRun run(engine);
    body(run);
    engine.dismiss();
    run.step();
  });
}

RunOutcome run_requests(int ranks, const EngineSetup& model, const StepOptions& options,
                        const std::vector<Request>& requests) {
  RunOutcome outcome;
  run_engine(ranks, model, options, [&](EngineRun& engine) {
    for (const Request& request : requests) engine.submit(request);
    engine.finish();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      outcome.tokens.push_back(engine.of(static_cast<RequestId>(i)).tokens);
    }
    outcome.statistics = engine.engine().statistics();
  });
  return outcome;
}

}  // namespace moesaic
