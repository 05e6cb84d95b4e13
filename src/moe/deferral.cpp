#include "src/moe/deferral.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace moesaic {
namespace {

void reset(Routing& routing, std::int64_t num_tokens, std::int64_t topk, std::int64_t first_word) {
  routing.num_tokens = num_tokens;
  routing.topk = topk;
  routing.first_word = first_word;
  routing.experts.clear();
  routing.weights.clear();
}

/// Weights in the order of deferral; NaN counts as smaller than everything, as for the router.
float order_of(float weight) {
  return std::isnan(weight) ? -HUGE_VALF : weight;
}

/// Whether choice `k` of a token is among the `count` of least weight.
bool is_deferred(std::span<const float> weights, std::size_t k, std::int64_t count) {
  const float weight = order_of(weights[k]);
  std::int64_t less = 0;  // that are deferred before it
  for (std::size_t other = 0; other < weights.size(); ++other) {
    const float of_other = order_of(weights[other]);
    if (of_other < weight || (of_other == weight && other > k)) ++less;
  }
  return less < count;
}

}  // namespace

void split_routing(const Routing& all, std::int64_t count, Routing& immediate, Routing& deferred) {
  const std::int64_t kept = all.topk - count;
  reset(immediate, all.num_tokens, kept, 0);
  reset(deferred, all.num_tokens, count, kept);
  const auto topk = static_cast<std::size_t>(all.topk);
  for (std::size_t first = 0; first < all.experts.size(); first += topk) {
    const std::span<const float> weights = std::span(all.weights).subspan(first, topk);
    for (std::size_t k = 0; k < topk; ++k) {
      Routing& routing = is_deferred(weights, k, count) ? deferred : immediate;
      routing.experts.push_back(all.experts[first + k]);
      routing.weights.push_back(weights[k]);
    }
  }
}

std::optional<SlotRange> DeferredChoices::next_slot() {
  const std::vector<std::int64_t>& begin = plan.execute.slot_begin;
  while (next_ + 1 < begin.size()) {
    const std::size_t slot = next_++;
    if (begin[slot] < begin[slot + 1]) return SlotRange{slot, 1};
  }
  return std::nullopt;
}

std::optional<SlotRange> DeferredChoices::remaining_slots() {
  const std::size_t slots = plan.execute.slot_begin.size() - 1;
  const std::size_t first = std::exchange(next_, slots);
  if (plan.execute.slot_begin[first] == plan.execute.slot_begin[slots]) return std::nullopt;
  return SlotRange{first, slots - first};
}

void Deferral::hold(WireRows& rows, DecodedRows& decoded, PendingDispatch received) {
  std::swap(left().rows, rows);
  std::swap(left().decoded, decoded);
  left().received = std::move(received);  // keeps received rows alive; its own rows are elsewhere
  left().is_pending = true;
  left().next_ = 0;
}

void Deferral::next_layer() {
  due().results = {};
  due().received = {};
  due().is_pending = false;
  now_ = 1 - now_;
}

}  // namespace moesaic
