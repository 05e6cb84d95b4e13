#include "src/generate/generator.h"

#include <utility>

#include "src/generate/request_feed.h"

namespace moesaic {

GenerateResult generate(Transformer& transformer, Communicator& world,
                        std::span<const std::vector<std::int32_t>> prompts,
                        const GenerateOptions& options, const GenerateEvents& events) {
  StepEngine engine(transformer, world,
                    {.batch_tokens = options.batch_tokens,
                     .parallel = options.parallel,
                     .cache_bytes = options.cache_bytes,
                     .tokenizer = options.tokenizer,
                     .stop_wanted = options.stop_wanted});
  GenerateResult result;
  if (world.rank() == 0) result.completions.resize(prompts.size());
  std::size_t index = 0;
  const auto next = [&]() -> std::optional<Request> {
    if (index == prompts.size()) return std::nullopt;
    Request request{.tokens = prompts[index],
                    .max_new_tokens = options.max_new_tokens,
                    .sampling = options.sampling,
                    .stream = index,
                    .stop_tokens = options.stop_tokens,
                    .stop_strings = options.stop_strings};
    ++index;
    return request;
  };
  const auto finish = [&](Finished&& finished) {
    if (events.on_finished) events.on_finished(finished);
    result.completions[static_cast<std::size_t>(finished.request)] = std::move(finished);
  };
  result.complete = run_requests(
      engine, {.next = next, .on_token = events.on_token, .on_finished = finish, .on_step = {}});
  result.statistics = engine.statistics();
  return result;
}

}  // namespace moesaic
