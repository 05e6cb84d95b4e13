#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/attention_kernel.h"
#include "src/model/attention_plan.h"

namespace moesaic {

/// One layer's attention.
struct AttentionForm {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;

  [[nodiscard]] std::string name() const;  // "32x4x128"
};

/// Of --shapes: "32x4x128" (query heads x KV heads x elements of a head), or a model, whose layers'
/// attention it is; deepseek-v3, which has none of this kind, is left out. Throws Error{usage} that
/// names the item that is none, or that nothing is left.
[[nodiscard]] std::vector<AttentionForm> parse_attention_shapes(std::string_view list);

/// Attention that is run again and again, with several numbers of rows.
class MeasuredAttention {
 public:
  virtual ~MeasuredAttention() = default;
  virtual void run(const AttentionKernel& kernel, std::int64_t rows, ThreadPool& pool) = 0;
  /// Mean |result - exact| / mean |exact| of the last run.
  [[nodiscard]] virtual double error() const = 0;
  [[nodiscard]] virtual double operations(std::int64_t rows) const = 0;
  [[nodiscard]] virtual double bytes(std::int64_t rows) const = 0;
};

/// Random queries of one sequence's last tokens, and its keys and values: as many copies as
/// `memory` has room for, so that each run finds others, in memory and not in a cache.
class AttentionBed final : public MeasuredAttention {
 public:
  /// Throws Error{usage} if `memory` has no room for one.
  AttentionBed(const AttentionForm& form, AttentionKind kind, std::int64_t num_keys,
               std::span<std::byte> memory);

  /// Of the keys and values of one copy.
  [[nodiscard]] static std::int64_t copy_bytes(const AttentionForm& form, AttentionKind kind,
                                               std::int64_t num_keys);

  /// The last `rows` of the positions attend to those up to their own, on all threads, cut as the
  /// model does; rows <= num_keys.
  void run(const AttentionKernel& kernel, std::int64_t rows, ThreadPool& pool) override;

  /// Mean |result - exact| / mean |exact| of the last run, in fp64 from queries as given and keys
  /// and values as stored, over some of its rows and heads.
  [[nodiscard]] double error() const override;
  /// Of keys and values.
  [[nodiscard]] double bytes(std::int64_t /*rows*/) const override {
    return static_cast<double>(copy_bytes());
  }
  /// Multiplications and additions of both products for keys that rows see.
  [[nodiscard]] double operations(std::int64_t rows) const override;

 private:
  /// Of one worker.
  struct Scratch {
    ByteBuffer kernel;
    std::vector<std::int64_t> first_keys;
    std::vector<std::int64_t> end_keys;
  };

  [[nodiscard]] std::int64_t group() const { return form_.heads / form_.kv_heads; }
  [[nodiscard]] std::int64_t copy_bytes() const { return copy_bytes(form_, kind_, num_keys_); }
  void fill(std::span<std::byte> memory);
  [[nodiscard]] std::vector<double> exact_row(std::int64_t row, std::int64_t head) const;
  /// Where the group of query heads of one KV head and row starts, in queries_ and out_.
  [[nodiscard]] std::int64_t row_offset(std::int64_t kv_head, std::int64_t row) const;
  [[nodiscard]] AttentionArgs args(const AttentionTask& task, Scratch& scratch);

  AttentionForm form_;
  AttentionKind kind_;
  std::int64_t num_keys_;
  std::int64_t rows_ = 0;  // of the last run
  std::int64_t copy_ = 0;
  std::vector<const std::byte*> key_blocks_;    // [copies, kv_heads, blocks]
  std::vector<const std::byte*> value_blocks_;  // [copies, kv_heads, blocks]
  std::vector<float> queries_;                  // [kv_heads, rows, group, head_dim]
  std::vector<float> out_;
  Buffer<float> states_;
  AttentionPlan plan_;
  std::vector<Scratch> scratch_;
};

}  // namespace moesaic
