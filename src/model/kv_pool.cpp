#include "src/model/kv_pool.h"

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "src/model/model_config.h"

namespace moesaic {
namespace {

/// Bytes of a chunk, unless a page is larger. Its memory is touched page by page.
constexpr std::int64_t kChunkBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxChunkPages = 4096;

/// States, and the parts of a page, start on cache lines.
CacheNeeds aligned_needs(const LayerConfig& layer, Precision precision) {
  const CacheNeeds needs = layer.mixer->cache(precision);
  return {.page_bytes = round_up(needs.page_bytes, 64),
          .state_bytes = round_up(needs.state_bytes, 64)};
}

}  // namespace

KvPool::KvPool(const ModelConfig& config, Precision precision, std::int64_t max_bytes)
    : max_bytes_(max_bytes) {
  for (const LayerConfig& layer : config.layers) {
    const CacheNeeds needs = aligned_needs(layer, precision);
    places_.push_back(
        {.page = page_bytes_, .state = state_bytes_, .state_bytes = needs.state_bytes});
    page_bytes_ += needs.page_bytes;
    state_bytes_ += needs.state_bytes;
    depends_on_length_ = depends_on_length_ || layer.mixer->depends_on_prompt_length();
  }
  chunk_pages_ = std::clamp<std::int64_t>(kChunkBytes / std::max<std::int64_t>(1, page_bytes_), 1,
                                          kMaxChunkPages);
}

std::int64_t KvPool::sequence_bytes(const ModelConfig& config, Precision precision,
                                    std::int64_t positions) {
  const std::int64_t pages = round_up(positions, kPagePositions) / kPagePositions;
  std::int64_t sum = 0;
  for (const LayerConfig& layer : config.layers) {
    const CacheNeeds needs = aligned_needs(layer, precision);
    sum += needs.state_bytes + pages * needs.page_bytes;
  }
  return sum;
}

std::int64_t KvPool::bytes_of(const ModelConfig& config, Precision precision,
                              std::int64_t positions, std::int64_t sequences) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const std::int64_t bytes = sequence_bytes(config, precision, positions);
  if (bytes > kMost / std::max<std::int64_t>(sequences, 1)) return kMost;
  const bool has_states = sequence_bytes(config, precision, 0) > 0;
  return sequences * bytes +
         (has_states && sequences > 1 ? sequence_bytes(config, precision, 1) : 0);
}

void KvPool::count_bytes(std::int64_t added) {
  require(added <= max_bytes_ - bytes_, ErrorKind::resource,
          "the key-value cache is full: {} are in use, {} more are needed, {} are allowed",
          format_bytes(bytes_), format_bytes(added), format_bytes(max_bytes_));
  bytes_ += added;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

void KvPool::add_chunk() {
  chunks_.emplace_back(static_cast<std::size_t>(chunk_pages_ * page_bytes_));
  const auto first = narrow<PageId>(std::ssize(owners_));
  owners_.resize(owners_.size() + static_cast<std::size_t>(chunk_pages_));
  free_.reserve(owners_.size());  // so that release() never has to grow it
  for (auto page = narrow<PageId>(first + chunk_pages_); page-- > first;) free_.push_back(page);
}

KvPool::PageId KvPool::take_page() {
  count_bytes(page_bytes_);
  try {
    if (free_.empty()) add_chunk();
  } catch (...) {
    bytes_ -= page_bytes_;
    throw;
  }
  const PageId page = free_.back();
  free_.pop_back();
  owners_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void KvPool::release(PageId page) noexcept {
  if (--owners_[static_cast<std::size_t>(page)] > 0) return;
  free_.push_back(page);
  bytes_ -= page_bytes_;
}

std::byte* KvPool::data(PageId page) const noexcept {
  const ByteBuffer& chunk = chunks_[static_cast<std::size_t>(page / chunk_pages_)];
  return chunk.data() + page % chunk_pages_ * page_bytes_;
}

}  // namespace moesaic
