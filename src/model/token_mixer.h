#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/matrix_view.h"
#include "src/model/batch.h"
#include "src/model/layer_context.h"
#include "src/model/model_names.h"
#include "src/model/stash.h"
#include "src/model/weight_set.h"

namespace moesaic {

/// A layer that a mixer works for.
struct MixerLayer {
  std::int64_t index = 0;  // in the model
  const WeightSet& weights;
};

/// The part of a layer in which a token sees the tokens before it: attention, or a recurrence. One
/// object serves all layers of one kind on a rank.
class TokenMixer {
 public:
  virtual ~TokenMixer() = default;

  /// Computes what all layers share for this batch.
  virtual void begin(const Batch& batch) = 0;
  /// `batch` is that of the last begin(). Leaves what later tokens need in the sequences' caches
  /// (whose sizes stay).
  virtual void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) = 0;

  /// What forward() fills for backward(). By default both throw Error{usage}: layers of this kind
  /// cannot be trained.
  [[nodiscard]] virtual std::unique_ptr<Stash> make_stash() const;
  /// `batch` is that of the last begin(): whole sequences, as forward() had them with this stash;
  /// their caches are what it left.
  virtual void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                        const PartBackward& part);
};

/// What a layer keeps of a sequence between forward passes.
struct CacheNeeds {
  std::int64_t page_bytes = 0;   // for every kPagePositions positions
  std::int64_t state_bytes = 0;  // whatever the length; zero bytes before the first position
};

/// What mixing the tokens at positions 0, 1, ... of a sequence takes, without the products with
/// weights.
struct MixerWork {
  double flops = 0;
  double cache_bytes = 0;  // read, with one token a forward pass
};

/// Numbers of a token that a mixer works on between its products with weights.
struct TokenNumbers {
  std::int64_t head_dim = 0;  // of attention
  std::int64_t heads = 0;     // queries: they go to attention and come back
  std::int64_t rotated = 0;   // queries and keys
  std::int64_t angles = 0;    // by which these are rotated, which all layers of a kind share
  std::int64_t normed = 0;    // the same, if they have norms of their own
  std::int64_t stored = 0;    // keys and values
};

/// A pass, as far as working memory depends on it.
struct PassSize {
  std::int64_t tokens = 0;     // new ones
  std::int64_t positions = 0;  // of a sequence, at most
  int threads = 1;
};

/// What `moesaic inspect` says.
struct MixerText {
  std::string label;      // "heads"
  std::string sizes;      // "6 of 20, 2 for keys and values"
  std::string positions;  // "rope default (theta 10000)"
};

/// A kind of mixer with its sizes in one model: all that the rest of the program asks of it. The
/// layers that are alike share one object.
class MixerKind {
 public:
  virtual ~MixerKind() = default;

  [[nodiscard]] virtual std::vector<NamedWeight> weights(const LayerTensors& tensors) const = 0;
  [[nodiscard]] virtual CacheNeeds cache(Precision precision) const = 0;
  [[nodiscard]] virtual MixerWork work(Precision precision, std::int64_t tokens) const = 0;
  /// What a token takes besides work(), where a pass has so many tokens of its text, more than one:
  /// what is multiplied and then left out.
  [[nodiscard]] virtual double left_out_flops(std::int64_t /*tokens*/) const { return 0; }
  [[nodiscard]] virtual TokenNumbers token_numbers() const { return {}; }
  /// Working memory of a forward pass, a token.
  [[nodiscard]] virtual std::int64_t row_bytes() const = 0;
  /// The same that does not grow with tokens alone.
  [[nodiscard]] virtual std::int64_t pass_bytes(const PassSize& /*pass*/) const { return 0; }
  /// What a backward pass needs of the forward pass besides the layer's input, a token.
  [[nodiscard]] virtual std::int64_t kept_bytes() const = 0;
  /// Working memory of a backward pass besides that of a forward pass, a token.
  [[nodiscard]] virtual std::int64_t backward_bytes() const = 0;
  /// The same that does not grow with tokens alone.
  [[nodiscard]] virtual std::int64_t backward_pass_bytes(const PassSize& /*pass*/) const {
    return 0;
  }
  /// A position sees itself and window() - 1 before it; 0: all.
  [[nodiscard]] virtual std::int64_t window() const { return 0; }
  /// Whether the cache of a position depends on how long the prompt is.
  [[nodiscard]] virtual bool depends_on_prompt_length() const { return false; }

  [[nodiscard]] virtual MixerText text() const = 0;
  virtual void write_fields(JsonWriter& out) const = 0;

  /// `context` must outlive the mixer.
  [[nodiscard]] virtual std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const = 0;
};

}  // namespace moesaic
