#pragma once

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "kernels/attention_blocks.h"
#include "src/model/precision.h"

namespace moesaic {

struct ModelConfig;
class Sequence;

/// Positions of one page: a block of attention's.
inline constexpr std::int64_t kPagePositions = kKeysPerBlock;

/// The memory in which one rank's sequences keep what their layers remember: pages of
/// kPagePositions positions of all layers, which sequences with a common beginning share, and for
/// some kinds of layers a state of fixed size a sequence. Sizes are known beforehand; memory is
/// taken in chunks of pages as it is used, and pages that nobody needs any more are used again. For
/// one thread of a rank.
class KvPool {
 public:
  /// What is unlimited.
  static constexpr std::int64_t kNoLimit = INT64_MAX;

  /// `max_bytes` of pages and states in use.
  KvPool(const ModelConfig& config, Precision precision, std::int64_t max_bytes = kNoLimit);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  /// Bytes of a sequence of so many positions that shares nothing.
  [[nodiscard]] static std::int64_t sequence_bytes(const ModelConfig& config, Precision precision,
                                                   std::int64_t positions);
  /// Of so many of these, and, if they are several and have states, of one more state with a page:
  /// a beginning that they have in common. A PiB where it is more.
  [[nodiscard]] static std::int64_t bytes_of(const ModelConfig& config, Precision precision,
                                             std::int64_t positions, std::int64_t sequences);

  /// An empty sequence; the pool must outlive it. `prompt_length`: positions that are given at
  /// once, however they are cut into chunks. Throws Error{resource} if its states do not fit.
  [[nodiscard]] Sequence make_sequence(std::int64_t prompt_length);

  /// Of pages and states in use, a shared page once; now, and at most so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_bytes_; }
  [[nodiscard]] std::int64_t max_bytes() const noexcept { return max_bytes_; }
  /// Of one page, all layers.
  [[nodiscard]] std::int64_t page_bytes() const noexcept { return page_bytes_; }
  /// Of the states of one sequence, all layers; 0: all that a sequence has is in its pages.
  [[nodiscard]] std::int64_t state_bytes() const noexcept { return state_bytes_; }
  /// Whether what is kept of a position depends on the prompt's length.
  [[nodiscard]] bool depends_on_prompt_length() const noexcept { return depends_on_length_; }

 private:
  friend class Sequence;
  using PageId = std::int32_t;

  struct LayerPlace {
    std::int64_t page = 0;   // from the start of a page
    std::int64_t state = 0;  // from the start of a sequence's states
    std::int64_t state_bytes = 0;
  };

  /// A page with one owner; what it holds is left over. Throws Error{resource} at the limit, and if
  /// the system has no more memory.
  [[nodiscard]] PageId take_page();
  void share(PageId page) noexcept { ++owners_[static_cast<std::size_t>(page)]; }
  /// One owner less; without any the page is free.
  void release(PageId page) noexcept;
  [[nodiscard]] bool is_shared(PageId page) const noexcept {
    return owners_[static_cast<std::size_t>(page)] > 1;
  }
  [[nodiscard]] std::byte* data(PageId page) const noexcept;
  void add_chunk();
  void count_bytes(std::int64_t added);

  std::int64_t max_bytes_;
  std::int64_t page_bytes_ = 0;
  std::int64_t state_bytes_ = 0;
  std::int64_t chunk_pages_ = 0;
  bool depends_on_length_ = false;
  std::vector<LayerPlace> places_;    // [layers]
  std::vector<ByteBuffer> chunks_;    // of chunk_pages_ pages each
  std::vector<std::int32_t> owners_;  // [pages]
  std::vector<PageId> free_;
  std::int64_t bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

}  // namespace moesaic
