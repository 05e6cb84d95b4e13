#include "src/generate/prompt_logprobs.h"

#include <algorithm>
#include <utility>

#include "src/generate/gather_entries.h"

namespace moesaic {
namespace {

void add_prompt_logprobs(const Compute& compute, const LogitsRows& rows,
                         std::vector<PromptLogprob>& all) {
  if (!rows.logprobs) return;
  const std::int64_t known = std::ssize(rows.tokens) - 1 - rows.first;
  const std::int64_t count = std::clamp<std::int64_t>(known, 0, rows.logits.rows());
  std::vector<std::vector<TokenLogprob>> made(static_cast<std::size_t>(count));
  compute.pool->for_each(count, 1, [&](std::int64_t row) {
    const std::int32_t token = rows.tokens[static_cast<std::size_t>(rows.first + row + 1)];
    made[static_cast<std::size_t>(row)] =
        token_logprobs(rows.logits.row(row), token, *rows.logprobs, *compute.vector);
  });
  for (std::int64_t row = 0; row < count; ++row) {
    for (const TokenLogprob& logprob : made[static_cast<std::size_t>(row)]) {
      all.push_back(
          {.request = rows.request, .position = rows.first + row + 1, .logprob = logprob});
    }
  }
}

}  // namespace

std::vector<PromptLogprob> gather_prompt_logprobs(const Compute& compute, Communicator& world,
                                                  std::span<const LogitsRows> rows) {
  std::vector<PromptLogprob> own;
  for (const LogitsRows& some : rows) add_prompt_logprobs(compute, some, own);
  return gather_entries(world, std::move(own));
}

}  // namespace moesaic
