#pragma once

#include <type_traits>
#include <vector>

#include "base/buffer.h"
#include "kernels/attention_kernel.h"
#include "src/model/attention_plan.h"
#include "src/model/batch.h"
#include "src/model/layer_context.h"

namespace moesaic {

/// What all layers of one attention have in common.
struct AttentionSizes {
  std::int64_t key_dim = 0;    ///< of a key, and of a query
  std::int64_t value_dim = 0;  ///< of a value, and of a result
  /// Heads that have keys and values in the cache, as many as AttentionShape::kv_heads; or one,
  /// which all of these see.
  std::int64_t cache_heads = 1;
  std::int64_t most_group = 1;  ///< AttentionShape::group at most
  double scale = 1;             ///< scores are multiplied by it
};

/// Numbers of every token and head: those of head h of a row begin at data + row * row_stride +
/// h * head_stride.
template <typename Element>
struct HeadRows {
  Element* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;

  [[nodiscard]] Element* at(std::int64_t row, std::int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
  /// Of the heads from `head` on.
  [[nodiscard]] HeadRows from(std::int64_t head) const {
    return {at(0, head), row_stride, head_stride};
  }
  operator HeadRows<const Element>() const requires(!std::is_const_v<Element>) {
    return {data, row_stride, head_stride};
  }
};

/// What attention of one layer reads and writes, by rows of the batch and query heads. Results may
/// stand in the place of the queries.
struct AttentionHeads {
  HeadRows<const float> queries;   ///< key_dim each
  HeadRows<float> results;         ///< value_dim each, overwritten
  HeadRows<float> log_sum_exps{};  ///< one each, overwritten; or none
  const float* sinks = nullptr;    ///< one a head, or null
};

/// Attention of a batch's new tokens over what the sequences' caches hold, which it also writes: a
/// page has, for every head of the cache, a block of keys and then a block of values
/// (kernels/attention_blocks.h). Keeps its scratch memory between calls.
class AttentionRun {
 public:
  /// `context` must outlive this.
  AttentionRun(const AttentionSizes& sizes, LayerContext& context);

  [[nodiscard]] const AttentionKernel& kernel() const noexcept { return kernel_; }

  void begin(const Batch& batch, const AttentionShape& shape);
  /// Writes a token's key [key_dim] and value [value_dim] for one head of the cache.
  void store(std::int64_t layer, const BatchToken& token, std::int64_t head, const float* key,
             const float* value) const;
  /// Attention of all rows of the batch of begin(), whose keys and values are stored.
  void run(std::int64_t layer, const Batch& batch, const AttentionHeads& heads);

 private:
  /// `rows`: those of a task, kAttentionTaskRows or a whole group.
  struct Scratch {
    Buffer<float> queries;       // [rows, key_dim]
    Buffer<float> out;           // [rows, value_dim]
    Buffer<float> sinks;         // [rows]
    Buffer<float> log_sum_exps;  // [rows]
    ByteBuffer kernel;
    std::vector<std::int64_t> first_keys;
    std::vector<std::int64_t> end_keys;
    std::vector<const std::byte*> key_blocks;    // of the pages that a task sees
    std::vector<const std::byte*> value_blocks;  // the same
  };
  /// A layer of a batch.
  struct Pass {
    std::int64_t layer;
    const Batch& batch;
    const AttentionHeads& heads;
  };

  [[nodiscard]] std::byte* keys(const Sequence& sequence, std::int64_t layer, std::int64_t page,
                                std::int64_t head) const {
    return sequence.page(layer, page) + head * head_bytes_;
  }
  void attend(const Pass& pass, const AttentionTask& task, Scratch& scratch) const;
  void join(const Pass& pass, const AttentionJoin& join, Scratch& scratch) const;
  /// Queries and ranges of keys.
  void gather(const Pass& pass, const AttentionTask& task, Scratch& scratch) const;
  void find_blocks(const Pass& pass, const AttentionTask& task, Scratch& scratch) const;
  [[nodiscard]] const float* gather_sinks(const Pass& pass, const AttentionRows& rows,
                                          Scratch& scratch) const;
  /// Where the kernel is to put them; null where nobody wants them.
  [[nodiscard]] static float* sums_of(const Pass& pass, const Scratch& scratch) {
    return pass.heads.log_sum_exps.data != nullptr ? scratch.log_sum_exps.data() : nullptr;
  }
  void scatter(const Pass& pass, const AttentionRows& rows, const Scratch& scratch) const;

  AttentionSizes sizes_;
  LayerContext& context_;
  const AttentionKernel& kernel_;
  std::int64_t key_bytes_;   // of a block of keys
  std::int64_t head_bytes_;  // and the values behind it
  AttentionShape shape_;     // of the batch
  std::vector<AttentionSpan> spans_;
  AttentionPlan plan_;
  Buffer<float> states_;          // of the segments of the plan
  std::vector<Scratch> scratch_;  // one a worker
};

}  // namespace moesaic
