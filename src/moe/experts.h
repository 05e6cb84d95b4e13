#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix_view.h"
#include "src/lora/adapted_mlp.h"

namespace moesaic {

class DeviceExperts;
class ExpertPlacement;

/// [slots] which of a rank's experts of one layer are meant.
using SlotMask = std::vector<bool>;

/// A batch as its inputs have chosen, whichever ranks the experts are of; inputs are in the order
/// of ranks, own tokens at their rank's place, and of rows.
struct InputChoices {
  std::int64_t topk = 0;
  std::vector<const std::byte*> rows;  // [inputs]
  std::vector<std::int32_t> experts;   // [inputs, topk] ids in the model, ascending
};

/// What a rank's experts of one layer, or some of them, have to do. All of it stays until finish().
struct ExpertBatch {
  std::size_t first_slot = 0;
  /// [outputs] the input row of each output, ordered by slot.
  std::span<const std::byte* const> rows;
  /// [slots + 1] slot first_slot + s has outputs [slot_begin[s], slot_begin[s + 1]), counted from
  /// slot_begin[0].
  std::span<const std::int64_t> slot_begin;
  /// [outputs, hidden] to be written, not yet weighted; null: only what is kept is wanted
  MatrixView<float> outputs;
  MlpStash* keep = nullptr;  // gets what backward() needs
  Dropout dropout{};         // of the rows
  /// Null, or where the rows come from, if they are all of the batch: for who plans_itself().
  const InputChoices* choices = nullptr;
};

/// What goes back through a rank's experts.
struct ExpertBackward {
  std::span<const std::byte* const> rows;           // as in the forward pass
  std::span<const std::byte* const> gradient_rows;  // [outputs] of the token's result
  std::span<const float> row_weights;               // [outputs] of the routing
  std::span<const std::int64_t> slot_begin;
  MlpStash& stash;                       // of the forward pass, used up
  MatrixView<float> dx;                  // [outputs, hidden] to be written, not yet weighted
  std::span<float> weight_gradients;     // [outputs] to be written
  std::span<const SampleRange> samples;  // of outputs, ascending, each in one slot
  Dropout dropout{};                     // as in the forward pass
};

/// The experts of one layer that a rank owns, wherever they are computed, or some of them. Two
/// halves, so that several kinds can share a batch: all are started, then all are finished, and
/// each writes the outputs of its own slots.
class Experts {
 public:
  virtual ~Experts() = default;
  virtual void start(const ExpertBatch& batch) = 0;
  /// The outputs of the batch are written when this returns.
  virtual void finish() = 0;
  /// Gradients of a batch that was kept; those of adapters are added, sample by sample.
  virtual void backward(const ExpertBackward& batch, AdapterGradients& gradients) = 0;
  /// Whether it finds the rows of its experts itself, from what inputs chose. Then it is told,
  /// before a batch, where the layer's experts are, which stays so.
  [[nodiscard]] virtual bool plans_itself() const noexcept { return false; }
  virtual void tell_placement(const ExpertPlacement& /*placement*/, int /*own_rank*/) {}
  /// Those of them that are on a GPU; null: none are.
  [[nodiscard]] virtual DeviceExperts* on_device() noexcept { return nullptr; }
};

}  // namespace moesaic
