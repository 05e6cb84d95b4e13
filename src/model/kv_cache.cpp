#include "src/model/kv_cache.h"

#include "src/model/model_config.h"

namespace moesaic {
namespace {

/// States and pages start on cache lines.
CacheNeeds aligned_needs(const LayerConfig& layer, Precision precision) {
  const CacheNeeds needs = layer.mixer->cache(precision);
  return {.page_bytes = round_up(needs.page_bytes, 64),
          .state_bytes = round_up(needs.state_bytes, 64)};
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, Precision precision, const Extent& extent)
    : bytes_(static_cast<std::size_t>(bytes(config, precision, extent.capacity))),
      capacity_(round_up(extent.capacity, kPagePositions)),
      prompt_tokens_(extent.prompt_tokens) {
  std::int64_t start = 0;
  for (const LayerConfig& layer : config.layers) {
    const CacheNeeds needs = aligned_needs(layer, precision);
    const std::int64_t pages = start + needs.state_bytes;
    places_.push_back({.state = start, .pages = pages, .page_bytes = needs.page_bytes});
    start = pages + capacity_ / kPagePositions * needs.page_bytes;
  }
}

std::int64_t KvCache::bytes(const ModelConfig& config, Precision precision, std::int64_t capacity) {
  const std::int64_t pages = round_up(capacity, kPagePositions) / kPagePositions;
  std::int64_t sum = 0;
  for (const LayerConfig& layer : config.layers) {
    const CacheNeeds needs = aligned_needs(layer, precision);
    sum += needs.state_bytes + pages * needs.page_bytes;
  }
  return sum;
}

}  // namespace moesaic
