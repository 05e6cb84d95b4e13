#include "src/model/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "src/model/model_weights.h"

namespace moesaic {
namespace {

using Slices = std::vector<const TensorSlice*>;

/// Walks through the model.
class Planner {
 public:
  Planner(const ModelFiles& files, const WeightRequest& request, ModelWeights& target)
      : files_(files), request_(request), target_(target) {}

  WeightPlan plan(const ModelNames& names) {
    require(files_.packed() == nullptr || request_.layouts.precision() != Precision::f32,
            ErrorKind::usage,
            "{}: converted weights cannot be had in fp32; take the checkpoint they were made from",
            files_.directory());
    embedding(names.embedding);
    vector("final_norm", {&names.final_norm}, target_.final_norm);
    stacked(WeightRole::head, "lm_head", {&names.lm_head}, target_.lm_head);
    target_.layers.resize(names.layers.size());
    for (std::size_t l = 0; l < names.layers.size(); ++l) {
      layer_ = fmt::format("layers.{}.", l);
      attention(names.layers[l], target_.layers[l]);
      feed_forward(names.layers[l], target_.layers[l]);
    }
    return std::move(plan_);
  }

 private:
  struct Shape {
    std::int64_t rows = 0;
    std::int64_t depth = 0;
  };

  void embedding(const TensorSlice& slice) {
    PlannedWeight& weight = plan_.weights.emplace_back();
    weight.name = "embedding";
    if (files_.packed() == nullptr) {
      target_.embedding = MatrixSource(*files_.checkpoint(), slice);
      weight.parts = {target_.embedding};
    } else {
      weight.stored = &stored(weight.name, {slice.rows, slice.cols}, true);
      target_.embedding = MatrixSource(files_.packed()->tensor(*weight.stored));
    }
  }

  void attention(const LayerNames& names, LayerWeights& layer) {
    vector("input_norm", {&names.input_norm}, layer.input_norm);
    vector("post_attention_norm", {&names.post_attention_norm}, layer.post_attention_norm);
    stacked(WeightRole::dense, "qkv", {&names.q.weight, &names.k.weight, &names.v.weight},
            layer.qkv);
    if (names.q.bias) {
      vector("qkv_bias", {&*names.q.bias, &*names.k.bias, &*names.v.bias}, layer.qkv_bias);
    }
    stacked(WeightRole::dense, "o", {&names.o.weight}, layer.o);
    if (names.o.bias) vector("o_bias", {&*names.o.bias}, layer.o_bias);
    if (names.q_norm) vector("q_norm", {&*names.q_norm}, layer.q_norm);
    if (names.k_norm) vector("k_norm", {&*names.k_norm}, layer.k_norm);
  }

  void feed_forward(const LayerNames& names, LayerWeights& layer) {
    if (names.dense) mlp("dense", *names.dense, layer.dense);
    if (names.shared) mlp("shared", *names.shared, layer.shared);
    if (names.shared_gate) f32_matrix("shared_gate", *names.shared_gate, layer.shared_gate);
    if (names.router) f32_matrix("router", *names.router, layer.router);
    if (names.experts.empty()) return;
    layer.experts.resize(static_cast<std::size_t>(request_.experts.count));
    for (std::size_t slot = 0; slot < layer.experts.size(); ++slot) {
      const std::size_t expert = static_cast<std::size_t>(request_.experts.first) + slot;
      mlp(fmt::format("experts.{}", expert), names.experts[expert], layer.experts[slot]);
    }
  }

  /// MlpWeights or ExpertWeights.
  template <typename Target>
  void mlp(const std::string& name, const MlpNames& names, Target& target) {
    constexpr WeightRole kRole =
        std::is_same_v<Target, ExpertWeights> ? WeightRole::expert : WeightRole::dense;
    together(kRole,
             {{name + ".gate", &names.gate, &target.gate}, {name + ".up", &names.up, &target.up}});
    together(kRole, {{name + ".down", &names.down, &target.down}});
  }

  struct Member {
    std::string name;
    const TensorSlice* slice;
    PackedMatrix* target;
  };

  /// Matrices of one layout: one product reads a gate and an up together.
  void together(WeightRole role, const std::vector<Member>& members) {
    Slices slices;
    for (const Member& member : members) slices.push_back(member.slice);
    const std::vector<MatrixSource> all = sources(slices);
    const Packing packing = all.empty() ? Packing{} : request_.layouts.together(role, all);
    for (std::size_t i = 0; i < members.size(); ++i) {
      PlannedWeight& weight = add_matrix(members[i].name, {members[i].slice}, *members[i].target);
      weight.role = role;
      weight.home = role == WeightRole::expert ? WeightHome::rank : WeightHome::node;
      if (all.empty()) continue;
      weight.parts = {all[i]};
      set_packing(weight, packing);
    }
    if (all.empty()) check_together(plan_.weights.end() - std::ssize(members));
  }

  void stacked(WeightRole role, const std::string& name, const Slices& slices,
               PackedMatrix& target) {
    PlannedWeight& weight = add_matrix(name, slices, target);
    weight.role = role;
    if (files_.packed() != nullptr) return check_wanted(weight);
    weight.parts = sources(slices);
    set_packing(weight, request_.layouts.stacked(role, weight.parts));
  }

  /// Choices must not hang on rounding: router and shared gate stay f32 in every precision.
  void f32_matrix(const std::string& name, const TensorSlice& slice, PackedMatrix& target) {
    PlannedWeight& weight = add_matrix(name, {&slice}, target);
    require(weight.stored == nullptr || weight.packing.layout.format == Format::f32,
            ErrorKind::file, "{}: weight \"{}\" is {}, not f32", files_.path_of(kManifestFile),
            weight.name, layout_name(weight.packing.layout));
    weight.parts = sources({&slice});
    weight.packing.layout = {.format = Format::f32};
  }

  void vector(const std::string& name, const Slices& slices, std::span<const float>& target) {
    PlannedWeight& weight = plan_.weights.emplace_back();
    weight.name = layer_ + name;
    weight.vector = &target;
    if (files_.packed() == nullptr) {
      weight.parts = sources(slices);
      return;
    }
    std::int64_t elements = 0;
    for (const TensorSlice* slice : slices) elements += slice->rows * slice->cols;
    weight.stored = &stored(weight.name, {1, elements}, true);
    require(weight.stored->plain == DType::f32, ErrorKind::file, "{}: weight \"{}\" is {}, not F32",
            files_.path_of(kManifestFile), weight.name, dtype_name(*weight.stored->plain));
  }

  /// A matrix with its name; of a converted directory also with its entry and layout.
  PlannedWeight& add_matrix(const std::string& name, const Slices& slices, PackedMatrix& target) {
    PlannedWeight& weight = plan_.weights.emplace_back();
    weight.name = layer_ + name;
    weight.matrix = &target;
    if (files_.packed() == nullptr) return weight;
    Shape shape{0, slices.front()->cols};
    for (const TensorSlice* slice : slices) shape.rows += slice->rows;
    weight.stored = &stored(weight.name, shape, false);
    weight.packing.layout = weight.stored->layout;
    return weight;
  }

  void set_packing(PlannedWeight& weight, const Packing& packing) {
    weight.packing = packing;
    const bool asked = request_.layouts.precision() == Precision::f32 ||
                       request_.layouts.wanted().of(weight.role).has_value();
    const bool lost =
        !packing.keeps_codes && std::ranges::any_of(weight.parts, &MatrixSource::is_quantized);
    if (asked || !lost) return;
    plan_.notes.push_back(
        fmt::format("{}: parts on disk differ in layout, scale or order of "
                    "columns, or end within 16 rows; stored as {}",
                    weight.name, layout_name(packing.layout)));
  }

  /// Parts of the checkpoint; none of a converted directory.
  [[nodiscard]] std::vector<MatrixSource> sources(const Slices& slices) const {
    std::vector<MatrixSource> parts;
    if (files_.packed() != nullptr) return parts;
    for (const TensorSlice* slice : slices) parts.emplace_back(*files_.checkpoint(), *slice);
    return parts;
  }

  /// A weight of a converted directory, which must be of this shape.
  [[nodiscard]] const PackedEntry& stored(const std::string& name, const Shape& shape,
                                          bool is_plain) const {
    const PackedEntry& entry = files_.packed()->at(name);
    const auto kind = [](bool plain) { return plain ? "plain" : "packed"; };
    require(entry.rows == shape.rows && entry.depth == shape.depth &&
                entry.plain.has_value() == is_plain,
            ErrorKind::file,
            "{}: weight \"{}\" is {} of {} x {}, config.json asks for {} of {} x {}",
            files_.path_of(kManifestFile), name, kind(entry.plain.has_value()), entry.rows,
            entry.depth, kind(is_plain), shape.rows, shape.depth);
    return entry;
  }

  /// Weights from `first` on, of a converted directory, can stand in one product and are what is
  /// wanted.
  void check_together(std::vector<PlannedWeight>::const_iterator first) const {
    for (auto weight = first; weight != plan_.weights.end(); ++weight) {
      const Layout& layout = weight->packing.layout;
      require(
          layout == first->packing.layout && weight->stored->has_order == first->stored->has_order,
          ErrorKind::file, "{}: weights \"{}\" and \"{}\" have different layouts",
          files_.path_of(kManifestFile), first->name, weight->name);
      check_wanted(*weight);
    }
  }

  void check_wanted(const PlannedWeight& weight) const {
    const Layout& layout = weight.packing.layout;
    const std::optional<Layout>& wanted = request_.layouts.wanted().of(weight.role);
    require(!wanted || (wanted->format == layout.format && wanted->group == layout.group),
            ErrorKind::usage, "{}: converted with {} as {}, not {}; convert the checkpoint again",
            files_.directory(), weight.role == WeightRole::expert ? "experts" : weight.name,
            layout_name(layout), wanted ? layout_name(*wanted) : std::string());
  }

  const ModelFiles& files_;
  const WeightRequest& request_;
  ModelWeights& target_;
  WeightPlan plan_;
  std::string layer_;  // "layers.3."
};

}  // namespace

WeightPlan plan_weights(const ModelFiles& files, const ModelConfig& config,
                        const WeightRequest& request, ModelWeights& target) {
  return Planner(files, request, target).plan(files.names(config));
}

}  // namespace moesaic
