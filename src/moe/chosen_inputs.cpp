#include "src/moe/chosen_inputs.h"

namespace moesaic {
namespace {

/// Sources in the order of InputChoices.
std::vector<std::int64_t> inputs_in_order(const Communicator& ranks,
                                          const PendingDispatch& dispatch, std::int64_t tokens) {
  std::vector<std::int64_t> sources;
  std::int64_t received = tokens;
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer == ranks.rank()) {
      for (std::int64_t token = 0; token < tokens; ++token) sources.push_back(token);
      continue;
    }
    const std::int64_t end = received + dispatch.counts()[static_cast<std::size_t>(peer)];
    for (; received < end; ++received) sources.push_back(received);
  }
  return sources;
}

}  // namespace

std::vector<std::int64_t> list_choices(const Communicator& ranks, const PendingDispatch& dispatch,
                                       ChoiceBatch& choices) {
  const Routing& routing = choices.routing;
  InputChoices& inputs = choices.inputs;
  inputs.topk = routing.topk;
  inputs.experts.clear();
  std::vector<std::int64_t> sources = inputs_in_order(ranks, dispatch, routing.num_tokens);
  for (const std::int64_t source : sources) {
    const std::int32_t* const words =
        WireRows::experts_of(dispatch.words(source)) + routing.first_word;
    inputs.experts.insert(inputs.experts.end(), words, words + routing.topk);
  }
  return sources;
}

}  // namespace moesaic
