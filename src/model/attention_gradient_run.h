#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "kernels/attention_kernel.h"
#include "src/lora/sample_range.h"
#include "src/model/layer_context.h"

namespace moesaic {

/// Passes gradients back through attention of whole samples, a head of a sample at a time. Keeps
/// its scratch memory between calls.
class AttentionGradientRun {
 public:
  /// Both must outlive this.
  AttentionGradientRun(const AttentionKernel& kernel, const LayerContext& context)
      : kernel_(kernel),
        pool_(*context.compute.pool),
        scratch_(static_cast<std::size_t>(pool_.size())) {}

  /// args_of(sample, head) of all samples and heads: what the kernel gets, but for its scratch.
  template <typename ArgsOf>
  void run(std::span<const SampleRange> samples, std::int64_t heads, const ArgsOf& args_of) {
    pool_.parallel_for(std::ssize(samples) * heads, [&](std::int64_t task, int worker) {
      AttentionGradientArgs args =
          args_of(samples[static_cast<std::size_t>(task / heads)], task % heads);
      Buffer<std::byte>& scratch = scratch_[static_cast<std::size_t>(worker)];
      const std::int64_t bytes =
          attention_gradient_scratch_bytes(args.num_rows, args.head_dim, args.value_dim);
      if (scratch.size() < bytes) scratch.resize(bytes);
      args.scratch = scratch.data();
      kernel_.differentiate(args);
    });
  }

 private:
  const AttentionKernel& kernel_;
  ThreadPool& pool_;
  std::vector<Buffer<std::byte>> scratch_;  // one a worker, of the kernel
};

}  // namespace moesaic
