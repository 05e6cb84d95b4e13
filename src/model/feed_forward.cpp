#include "src/model/feed_forward.h"

#include <algorithm>
#include <utility>

#include "src/model/expert_names.h"
#include "src/moe/device_experts.h"
#include "src/moe/split_experts.h"

namespace moesaic {
namespace {

AdapterSite site(AdapterKind kind, MlpPart part, const TensorSlice& matrix, std::string module) {
  return {.kind = kind,
          .module = std::move(module),
          .out = matrix.rows,
          .in = matrix.cols,
          .part = part};
}

/// `block` is where its modules are: "mlp.shared_expert.".
std::vector<AdapterSite> mlp_sites(AdapterKind kind, const MlpNames& names,
                                   const std::string& block) {
  return {site(kind, MlpPart::gate, names.gate, block + "gate_proj"),
          site(kind, MlpPart::up, names.up, block + "up_proj"),
          site(kind, MlpPart::down, names.down, block + "down_proj")};
}

std::vector<AdapterSite> expert_sites(const MoeConfig& config, const MlpNames& names,
                                      std::int64_t expert) {
  const ExpertModules modules = expert_modules(config.usual_names, expert);
  std::vector<AdapterSite> sites = {
      site(AdapterKind::experts, MlpPart::gate, names.gate, modules.gate),
      site(AdapterKind::experts, MlpPart::up, names.up, modules.up),
      site(AdapterKind::experts, MlpPart::down, names.down, modules.down)};
  for (AdapterSite& one : sites) {
    one.expert = expert;
    one.num_experts = config.experts;
    one.fused4 = one.part == MlpPart::down ? modules.down4 : modules.gate_up4;
    one.fused5 = modules.all5;
    one.takes_turns = config.takes_turns;
    one.lies_across = config.lies_across;
  }
  return sites;
}

/// `sites`: of gate, up and down, or none.
void add_mlp(std::vector<NamedWeight>& weights, const std::string& name, const MlpNames& names,
             const std::vector<AdapterSite>& sites) {
  const std::size_t first = weights.size();
  weights.push_back({.name = name + ".gate", .parts = {names.gate}});
  weights.push_back({.name = name + ".up", .parts = {names.up}, .joins_previous = true});
  weights.push_back({.name = name + ".down", .parts = {names.down}});
  for (std::size_t i = 0; i < sites.size(); ++i) weights[first + i].sites = {sites[i]};
  for (std::size_t i = 0; i < names.biases.size(); ++i) {
    weights.push_back({.name = weights[first + i].name + "_bias",
                       .parts = {names.biases[i]},
                       .form = WeightForm::vector});
  }
}

class PlainMlp : public FeedForward {
 public:
  PlainMlp(const WeightSet& weights, LayerContext& context)
      : mlp_(mlp_at(weights, 0)), context_(context) {}

  void begin(const PartForward& part) override {
    const PhaseScope scope(context_.times, Phase::mlp);
    auto* const keep = static_cast<Kept*>(part.keep);
    context_.linear.gated_mlp(mlp_, part.x, part.y, keep != nullptr ? &keep->mlp : nullptr);
  }
  void end(const PartForward&) override {}

  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    return std::make_unique<Kept>();
  }
  void backward(Stash& stash, const PartBackward& part) override {
    const PhaseScope scope(context_.times, Phase::mlp);
    context_.linear.gated_mlp_backward(mlp_, part, static_cast<Kept&>(stash).mlp);
  }

 private:
  struct Kept : Stash {
    [[nodiscard]] std::int64_t bytes() const override { return mlp.bytes(); }
    MlpStash mlp;
  };

  AdaptedMlp mlp_;
  LayerContext& context_;
};

/// Places in the weight set of a MoE layer.
enum MoeWeight : std::size_t {
  kShared = 0,
  kSharedGate = 3,
  kRouter = 4,
  kChoiceBias = 5,
  kRouterBias = 6,
  kFirstExpert = 7
};

/// Weights of one expert: gate, up and down, and their biases.
std::size_t weights_of_expert(const MoeConfig& config) {
  return config.expert_bias ? 6 : 3;
}

std::vector<AdaptedMlp> experts_of(const MoeConfig& config, const WeightSet& weights) {
  std::vector<AdaptedMlp> experts;
  for (std::size_t at = kFirstExpert; at < weights.size(); at += weights_of_expert(config)) {
    AdaptedMlp& expert = experts.emplace_back(mlp_at(weights, at));
    expert.gating = config.gating;
    if (!config.expert_bias) continue;
    expert.biases = {.gate = weights[at + 3].vector.data(),
                     .up = weights[at + 4].vector.data(),
                     .down = weights[at + 5].vector.data()};
  }
  return experts;
}

/// Those whose weights lie on this rank's GPU run there.
std::unique_ptr<Experts> make_experts(const MoeConfig& config, const WeightSet& weights,
                                      LayerContext& context) {
  const std::vector<AdaptedMlp> experts = experts_of(config, weights);
  SlotMask on_device;
  for (std::size_t at = kFirstExpert; at < weights.size(); at += weights_of_expert(config)) {
    on_device.push_back(weights[at].on_device);
  }
  const RowSource::Element element = activation_element(context.config.precision);
  if (std::ranges::count(on_device, true) == 0) {
    return std::make_unique<CpuExperts>(experts, element, context.cpu_experts);
  }
  auto device = std::make_unique<DeviceExperts>(experts, on_device, *context.config.device);
  if (std::ranges::count(on_device, false) == 0) return device;
  on_device.flip();
  return std::make_unique<SplitExperts>(
      std::move(device),
      std::make_unique<CpuExperts>(experts, element, context.cpu_experts, on_device));
}

/// What products of an MLP make of its input. In the order of how much they lose.
enum class TakenRows : std::int64_t { any, int8, int8_groups };

TakenRows taken_rows(const AdaptedMlp& mlp, const Compute& compute) {
  if (mlp.gate != nullptr || mlp.up != nullptr) return TakenRows::any;
  const auto scales = int8_scales(mlp.weights.gate, compute.int4_activations);
  if (!scales) return TakenRows::any;
  return *scales == Int8Rows::Scales::row ? TakenRows::int8 : TakenRows::int8_groups;
}

/// What products of all experts, of all ranks, make of a row, if that is the same. Collective.
TakenRows taken_rows(std::span<const AdaptedMlp> experts, const LayerContext& context) {
  Communicator& ranks = context.moe.front().context.experts;
  std::array<std::int64_t, 2> range = {INT64_MIN, INT64_MIN};  // the largest, and less the smallest
  for (const AdaptedMlp& mlp : experts) {
    const auto taken = static_cast<std::int64_t>(taken_rows(mlp, context.compute));
    range = {std::max(range[0], taken), std::max(range[1], -taken)};
  }
  ranks.max(range);
  return range[0] == -range[1] ? TakenRows{range[0]} : TakenRows::any;
}

class MoeFeedForward : public FeedForward {
 public:
  MoeFeedForward(const MoeConfig& config, const WeightSet& weights, LayerContext& context)
      : shared_(mlp_at(weights, kShared)),
        shared_gate_{weights[kSharedGate].matrix},
        layer_(
            Router(weights[kRouter].matrix, config.router, context.compute,
                   {.logits = weights[kRouterBias].vector, .choice = weights[kChoiceBias].vector}),
            make_experts(config, weights, context), activation_element(context.config.precision),
            context.compute),
        context_(context) {
    const DeviceExpertsWorkspace* const device = context.config.device;
    if (device != nullptr && device->road != nullptr) layer_.take_road(*device->road);
    const TakenRows taken = taken_rows(experts_of(config, weights), context);
    if (taken == TakenRows::any) return;
    layer_.take_int8({config.hidden,
                      taken == TakenRows::int8 ? Int8Rows::Scales::row : Int8Rows::Scales::block});
  }

  void begin(const PartForward& part) override {
    auto* const keep = static_cast<Kept*>(part.keep);
    MoeWorkspace& work = context_.moe[part.half];
    work.keep = keep != nullptr ? &keep->moe : nullptr;
    work.keeps_alone = part.y.cols() == 0;
    work.defer = part.defer;
    layer_.begin(part.x, work);
    if (has_shared()) compute_shared(part);
  }
  void execute(const PartForward& part) override { layer_.execute(context_.moe[part.half]); }
  void end(const PartForward& part) override {
    layer_.end(part.y, context_.moe[part.half]);
    if (has_shared()) add_shared(part);
  }

  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    return std::make_unique<Kept>();
  }
  void backward(Stash& stash, const PartBackward& part) override {
    auto& kept = static_cast<Kept&>(stash);
    const MoeBackward pass{part, kept.moe};
    layer_.begin_backward(pass, context_.moe.front());
    if (has_shared()) pass_back_shared(kept, part);
    layer_.end_backward(pass, context_.moe.front());
    if (has_shared()) add_shared_gradient(kept, part.dx);
  }

 private:
  struct Kept : Stash {
    [[nodiscard]] std::int64_t bytes() const override {
      return moe.bytes() + shared.bytes() + 4 * gates.size();
    }
    MoeStash moe;
    MlpStash shared;
    Buffer<float> gates;  // [rows] sigmoid
  };

  [[nodiscard]] bool has_shared() const { return shared_.weights.gate.panels != nullptr; }
  [[nodiscard]] bool gates_shared() const { return shared_gate_.matrix.panels != nullptr; }

  void compute_shared(const PartForward& part) {
    const PhaseScope scope(context_.times, Phase::mlp);
    auto* const keep = static_cast<Kept*>(part.keep);
    const MatrixView<const float>& x = part.x;
    auto& [out, gates] = context_.shared[part.half];
    out.reserve(x.rows() * x.cols());
    MatrixView<float> y;
    if (part.y.cols() > 0) y = out.matrix(x.rows(), x.cols());
    if (gates_shared()) {
      gates.reserve(x.rows());
      context_.linear.forward(shared_gate_, {}, x, gates.matrix(x.rows(), 1));
    }
    context_.linear.gated_mlp(shared_, x, y, keep != nullptr ? &keep->shared : nullptr);
  }

  void add_shared(const PartForward& part) const {
    const PhaseScope scope(context_.times, Phase::mlp);
    const VectorKernels& vector = *context_.compute.vector;
    auto* const keep = static_cast<Kept*>(part.keep);
    const SharedOut& shared = context_.shared[part.half];
    const std::int64_t hidden = part.x.cols();
    if (!gates_shared()) {
      if (part.y.cols() == 0) return;
      return context_.add_rows(shared.out.matrix(part.x.rows(), hidden), part.y);
    }
    if (keep != nullptr) keep->gates.reserve(part.x.rows());
    context_.for_each_row(part.x.rows(), [&](std::int64_t row) {
      // sigmoid(g) = softmax({g, 0})[0]
      std::array<float, 2> gate = {shared.gates.data()[row], 0.0F};
      vector.softmax(gate.data(), 2);
      if (keep != nullptr) keep->gates.data()[row] = gate[0];
      if (part.y.cols() == 0) return;
      vector.add_scaled(shared.out.data() + row * hidden, gate[0], hidden, part.y.row(row).data());
    });
  }

  /// The gradient of the shared expert's input, not yet weighted by its gate, and of the gate.
  void pass_back_shared(Kept& kept, const PartBackward& part) {
    const PhaseScope scope(context_.times, Phase::mlp);
    const std::int64_t rows = part.x.rows();
    auto& [out, gates] = context_.shared.front();
    out.reserve(rows * part.x.cols());
    PartBackward shared = part;
    shared.dx = out.matrix(rows, part.x.cols());
    if (!gates_shared()) {
      return context_.linear.gated_mlp_backward(shared_, shared, kept.shared);
    }
    gates.reserve(rows);
    context_.linear.gated_mlp_backward(shared_, shared, kept.shared,
                                       {kept.gates.data(), gates.data()});
  }

  void add_shared_gradient(const Kept& kept, MatrixView<float> dx) {
    const PhaseScope scope(context_.times, Phase::mlp);
    const SharedOut& shared = context_.shared.front();
    if (!gates_shared()) {
      return context_.add_rows(shared.out.matrix(dx.rows(), dx.cols()), dx);
    }
    float* const gates = shared.gates.data();
    context_.for_each_row(dx.rows(), [&](std::int64_t row) {
      const float sigmoid = kept.gates.data()[row];
      context_.compute.vector->add_scaled(shared.out.data() + row * dx.cols(), sigmoid, dx.cols(),
                                          dx.row(row).data());
      gates[row] *= sigmoid * (1 - sigmoid);
    });
    context_.linear.add_input_gradient(shared_gate_, shared.gates.matrix(dx.rows(), 1), dx);
  }

  AdaptedMlp shared_;  // without panels: none
  Weight shared_gate_;
  MoeLayer layer_;
  LayerContext& context_;
};

}  // namespace

std::vector<NamedWeight> PlainMlpKind::weights(const LayerTensors& tensors) const {
  std::vector<NamedWeight> weights;
  const MlpNames names = mlp_names(tensors, "mlp", {hidden_, width_});
  add_mlp(weights, "dense", names, mlp_sites(AdapterKind::dense, names, "mlp."));
  return weights;
}

std::unique_ptr<FeedForward> PlainMlpKind::make_layer(const WeightSet& weights,
                                                      LayerContext& context) const {
  return std::make_unique<PlainMlp>(weights, context);
}

FeedForwardSizes MoeKind::sizes() const {
  return {.experts = config_.experts,
          .experts_per_token = config_.router.topk,
          .expert_width = config_.expert_width,
          .common_width = config_.shared_width};
}

std::vector<NamedWeight> MoeKind::weights(const LayerTensors& tensors) const {
  std::vector<NamedWeight> weights;
  const MlpNames shared = shared_expert_names(tensors, config_);
  add_mlp(weights, "shared", shared,
          mlp_sites(AdapterKind::shared, shared,
                    std::string(shared_expert_module(config_.usual_names))));
  weights.push_back({.name = "shared_gate",
                     .parts = {tensors.matrix("mlp.shared_expert_gate", 1, config_.hidden)},
                     .form = WeightForm::f32_matrix});
  if (config_.shared_width == 0) {
    for (NamedWeight& weight : weights) {
      weight.parts.clear();
      weight.sites.clear();
    }
  }
  if (!config_.gates_shared) weights[kSharedGate].parts.clear();
  weights.push_back({.name = "router",
                     .parts = {router_slice(tensors, config_)},
                     .form = WeightForm::f32_matrix});
  std::vector<TensorSlice> bias;
  if (config_.choice_bias) bias = {choice_bias_slice(tensors, config_)};
  weights.push_back({.name = "choice_bias", .parts = std::move(bias), .form = WeightForm::vector});
  weights.push_back({.name = "router_bias", .parts = {}, .form = WeightForm::vector});
  if (config_.router_bias) weights.back().parts = {router_bias_slice(tensors, config_)};
  const std::vector<MlpNames> experts = expert_names(tensors, config_);
  for (std::size_t expert = 0; expert < experts.size(); ++expert) {
    const std::size_t first = weights.size();
    add_mlp(weights, "experts." + std::to_string(expert), experts[expert],
            expert_sites(config_, experts[expert], static_cast<std::int64_t>(expert)));
    for (std::size_t at = first; at < weights.size(); ++at) {
      weights[at].role = WeightRole::expert;
      weights[at].expert = static_cast<std::int64_t>(expert);
    }
  }
  return weights;
}

/// Logits of the router, choices with weights and places, the row that travels, the shared expert's
/// result.
std::int64_t MoeKind::row_bytes() const {
  return 4 * config_.experts + 24 * config_.router.topk + 4 * config_.hidden +
         (config_.shared_width > 0 ? 4 * config_.hidden : 0);
}

/// The result, and where its input is.
std::int64_t MoeKind::expert_row_bytes() const {
  return 4 * config_.hidden + 32;
}

/// What MoeStash and the shared expert's MlpStash have: scores where the router needs them;
/// gate and up of each choice, and its place on the roads; rows that came from other ranks.
std::int64_t MoeKind::kept_bytes(int ranks) const {
  constexpr std::int64_t kChoiceBytes = 24;  // of Routing and ExchangePlan
  const RouterOptions& router = config_.router;
  const std::int64_t scores = router.needs_scores_to_pass_back() ? config_.experts : 0;
  const std::int64_t received = std::min<std::int64_t>(router.topk, ranks - 1);
  return 4 * scores + 4 * (2 * config_.shared_width + 1) +
         router.topk * (4 * 2 * config_.expert_width + kChoiceBytes) +
         received * 4 * config_.hidden;
}

/// Gradients of gated activations, and the rows on their way with their weights.
std::int64_t MoeKind::backward_bytes() const {
  const std::int64_t per_output = 4 * config_.expert_width + 64;
  return 4 * config_.shared_width + 4 * config_.hidden + 2 * config_.router.topk * per_output;
}

std::string MoeKind::missing_on_gpus() const {
  if (!config_.expert_bias) return "";
  return "experts with biases run on CPUs alone: kernels for GPUs add none";
}

std::unique_ptr<FeedForward> MoeKind::make_layer(const WeightSet& weights,
                                                 LayerContext& context) const {
  return std::make_unique<MoeFeedForward>(config_, weights, context);
}

}  // namespace moesaic
