#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/matrix_view.h"
#include "src/model/layer_context.h"
#include "src/model/model_names.h"
#include "src/model/stash.h"
#include "src/model/weight_set.h"

namespace moesaic {

/// The part of a layer that works on each token by itself.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  /// A forward pass in its parts, of which each is collective over the experts' group: between
  /// them another batch may be at work, of which `part.half` tells this one. Starts what can be
  /// under way meanwhile; part.x and part.y stay until the end.
  virtual void begin(const PartForward& part) = 0;
  /// Does what this rank has to do for others.
  virtual void execute(const PartForward& /*part*/) {}
  /// part.y is written when this returns.
  virtual void end(const PartForward& part) = 0;
  void forward(const PartForward& part) {
    begin(part);
    end(part);
  }

  /// What forward() fills for backward(). By default both throw Error{usage}: layers of this kind
  /// cannot be trained.
  [[nodiscard]] virtual std::unique_ptr<Stash> make_stash() const;
  /// Collective over the experts' group.
  virtual void backward(Stash& stash, const PartBackward& part);
};

struct FeedForwardSizes {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_width = 0;
  /// Of the MLP that every token passes: a shared expert, or that of a layer without experts.
  std::int64_t common_width = 0;
};

/// A kind of feed-forward part with its sizes in one model; as MixerKind.
class FeedForwardKind {
 public:
  virtual ~FeedForwardKind() = default;

  [[nodiscard]] virtual FeedForwardSizes sizes() const = 0;
  [[nodiscard]] virtual std::vector<NamedWeight> weights(const LayerTensors& tensors) const = 0;
  /// Working memory of a forward pass, a token, besides its experts'.
  [[nodiscard]] virtual std::int64_t row_bytes() const = 0;
  /// And of each row that this rank's experts work on: a token's choice of one.
  [[nodiscard]] virtual std::int64_t expert_row_bytes() const { return 0; }
  /// What a backward pass needs of the forward pass besides the layer's input, a token, with the
  /// average load for the experts of each of `ranks`; without what adapters need, which is little.
  [[nodiscard]] virtual std::int64_t kept_bytes(int ranks) const = 0;
  /// Working memory of a backward pass besides that of a forward pass, a token, with twice the
  /// average load.
  [[nodiscard]] virtual std::int64_t backward_bytes() const = 0;
  /// Why its experts cannot be on GPUs, whatever format they are in; empty: they can.
  [[nodiscard]] virtual std::string missing_on_gpus() const { return ""; }
  /// `context` and what `weights` point to must outlive the result. Collective over the experts'
  /// group.
  [[nodiscard]] virtual std::unique_ptr<FeedForward> make_layer(const WeightSet& weights,
                                                                LayerContext& context) const = 0;
};

/// One gated MLP for all tokens.
class PlainMlpKind : public FeedForwardKind {
 public:
  PlainMlpKind(std::int64_t hidden, std::int64_t width) : hidden_(hidden), width_(width) {}

  [[nodiscard]] FeedForwardSizes sizes() const override { return {.common_width = width_}; }
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override;
  [[nodiscard]] std::int64_t row_bytes() const override { return 0; }
  [[nodiscard]] std::int64_t kept_bytes(int) const override { return 4 * 2 * width_; }
  [[nodiscard]] std::int64_t backward_bytes() const override { return 4 * width_; }
  [[nodiscard]] std::unique_ptr<FeedForward> make_layer(const WeightSet& weights,
                                                        LayerContext& context) const override;

 private:
  std::int64_t hidden_;
  std::int64_t width_;
};

/// How save_pretrained names the parts of a family's MoE block where the checkpoint has none of the
/// names that are known (expert_names.cpp). expert_modules() there tells how PEFT calls them.
enum class MoeNames { qwen, mixtral, granite, deepseek, hunyuan, ernie, gpt_oss };

struct MoeConfig {
  std::int64_t hidden = 0;
  std::int64_t experts = 0;
  std::int64_t expert_width = 0;
  std::int64_t shared_width = 0;  // of the shared expert; 0: none
  bool gates_shared = false;      // its result is weighted by a sigmoid of its input
  RouterOptions router{};
  bool choice_bias = false;  // the router has one
  bool router_bias = false;  // and one of its logits
  bool expert_bias = false;  // of gate, up and down
  Gating gating{};           // of the routed experts
  /// Where gate and up of all experts are one tensor, their rows take turns, as in blocks they
  /// always do; else gate comes first.
  bool takes_turns = false;
  /// Such tensors are [experts, in, out], unless they are in blocks.
  bool lies_across = false;
  MoeNames usual_names = MoeNames::qwen;
};

/// Routed experts, and perhaps a shared one.
class MoeKind : public FeedForwardKind {
 public:
  explicit MoeKind(const MoeConfig& config) : config_(config) {}

  [[nodiscard]] const MoeConfig& config() const noexcept { return config_; }

  [[nodiscard]] FeedForwardSizes sizes() const override;
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override;
  [[nodiscard]] std::int64_t row_bytes() const override;
  [[nodiscard]] std::int64_t expert_row_bytes() const override;
  [[nodiscard]] std::int64_t kept_bytes(int ranks) const override;
  [[nodiscard]] std::int64_t backward_bytes() const override;
  [[nodiscard]] std::string missing_on_gpus() const override;
  [[nodiscard]] std::unique_ptr<FeedForward> make_layer(const WeightSet& weights,
                                                        LayerContext& context) const override;

 private:
  MoeConfig config_;
};

}  // namespace moesaic
