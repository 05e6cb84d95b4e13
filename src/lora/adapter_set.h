#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/matrix_view.h"
#include "base/thread_pool.h"
#include "kernels/format.h"
#include "src/lora/adapter.h"
#include "src/lora/adapter_gradients.h"
#include "src/lora/adapter_site.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

/// An adapter that a model is to have.
struct AdapterSpec {
  AdapterSite site;
  std::int64_t rank = 0;
  double alpha = 0;
  float scale = 0;  ///< adapter_scale(alpha, rank, ...)
  /// The factor A is that of the adapter before it: a gate's, of the same MLP.
  bool shares_a = false;

  /// Numbers of the factors that are its own.
  [[nodiscard]] std::int64_t a_values() const noexcept { return shares_a ? 0 : rank * site.in; }
  [[nodiscard]] std::int64_t b_values() const noexcept { return rank * site.out; }
  [[nodiscard]] std::int64_t num_values() const noexcept { return a_values() + b_values(); }
};

/// lora_alpha / rank, or lora_alpha / sqrt(rank) of a rank-stabilised adapter.
[[nodiscard]] float adapter_scale(double alpha, std::int64_t rank, bool rank_stabilised) noexcept;

/// An adapter's factors: y += scale * (x A^T) B^T.
template <typename Element>
struct AdapterFactors {
  MatrixView<Element> a;  // [rank, in]
  MatrixView<Element> b;  // [out, rank]
};

/// The adapters that one rank holds: all that belong to no expert, and those of its own experts.
/// Master values are f32 and change in place; products read a packed copy of them.
class AdapterSet {
 public:
  /// `specs`: those of this rank, in the order of the model's weights; those of experts are put
  /// behind the others. All values are zero. `format` (bf16 or f32) is that of the packed copy.
  /// Throws Error{resource} when the system refuses the memory.
  AdapterSet(std::vector<AdapterSpec> specs, Format format);
  /// Bytes that a set of them takes, without those of a gradient or an optimizer.
  [[nodiscard]] static std::int64_t bytes(std::span<const AdapterSpec> specs, Format format);

  [[nodiscard]] std::int64_t bytes() const noexcept {
    return 4 * masters_.size() + static_cast<std::int64_t>(panels_.size());
  }

  [[nodiscard]] std::int64_t size() const noexcept { return std::ssize(specs_); }
  [[nodiscard]] const AdapterSpec& spec(std::int64_t index) const {
    return specs_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] AdapterFactors<float> factors(std::int64_t index);
  [[nodiscard]] AdapterFactors<const float> factors(std::int64_t index) const;

  /// All values: A then B of adapter after adapter; an A that is shared stands once.
  [[nodiscard]] std::span<float> masters() const noexcept { return masters_.span(); }
  /// Where each adapter's factors stand in masters().
  [[nodiscard]] const std::vector<AdapterPlace>& places() const noexcept { return places_; }
  /// Adapters [0, num_common()) belong to no expert: all ranks hold them.
  [[nodiscard]] std::int64_t num_common() const noexcept { return num_common_; }
  /// Values of these, which come first in masters().
  [[nodiscard]] std::int64_t num_common_values() const noexcept;

  /// Brings the packed copy to the values as they are.
  void pack(ThreadPool& pool);
  /// What products read, by index. Stays where it is.
  [[nodiscard]] std::span<const Adapter> packed() const noexcept { return packed_; }
  /// The same of a matrix whose adapters are [first, first + count): one, or their composite.
  /// Throws Error{internal} if they are not all adapters of one matrix.
  [[nodiscard]] const Adapter& of_matrix(std::int64_t first, std::int64_t count) const;

 private:
  template <typename Element>
  [[nodiscard]] AdapterFactors<Element> factors_at(std::int64_t index) const {
    const AdapterPlace& place = places_[static_cast<std::size_t>(index)];
    return {{masters_.data() + place.a.first, place.a.rows, place.a.cols},
            {masters_.data() + place.b.first, place.b.rows, place.b.cols}};
  }
  void place_masters();
  void place_packed(Format format);
  /// Scratch memory of a thread that packs.
  struct Scratch {
    std::vector<float> factor;
    std::vector<BFloat16> rounded;
  };
  void pack_composite(const Adapter& composite, Scratch& scratch) const;

  std::vector<AdapterSpec> specs_;
  std::int64_t num_common_ = 0;
  std::vector<AdapterPlace> places_;
  Buffer<float> masters_;
  std::vector<Adapter> packed_;
  std::vector<Adapter> composites_;  // of stacked matrices
  ByteBuffer panels_;
};

/// Values of new adapters, as PEFT draws them: A uniform in +- 1 / sqrt(in), B zero. They depend on
/// seed and module alone.
void initialize(AdapterSet& set, std::uint64_t seed);

/// Numbers to train, by AdapterKind.
[[nodiscard]] std::array<std::int64_t, kAdapterKindNames.size()> trainable_numbers(
    std::span<const AdapterSpec> specs);

/// Where each adapter of `set` stands among `all` of the model. Throws Error{internal} if one does
/// not.
[[nodiscard]] std::vector<std::int64_t> indices_in(std::span<const AdapterSpec> all,
                                                   const AdapterSet& set);

/// Those of `specs` that a rank has that holds these experts.
[[nodiscard]] std::vector<AdapterSpec> specs_of_rank(std::span<const AdapterSpec> specs,
                                                     const HeldExperts& held);

}  // namespace moesaic
