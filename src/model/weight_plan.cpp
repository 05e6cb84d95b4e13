#include "src/model/weight_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "src/checkpoint/codecs/codecs.h"
#include "src/checkpoint/companion_names.h"
#include "src/checkpoint/mapped_file.h"
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
    target_.layers.resize(names.layers.size());
    if (request_.only_layer) {
      add_layer(names, narrow<std::size_t>(*request_.only_layer));
      return std::move(plan_);
    }
    vector("final_norm", {&names.final_norm}, target_.final_norm);
    stacked(WeightRole::head, "lm_head", {&names.lm_head}, target_.lm_head);
    for (std::size_t l = 0; l < names.layers.size(); ++l) add_layer(names, l);
    return std::move(plan_);
  }

 private:
  struct Shape {
    std::int64_t rows = 0;
    std::int64_t depth = 0;
  };

  void add_layer(const ModelNames& names, std::size_t index) {
    layer_ = fmt::format("layers.{}.", index);
    layer_index_ = static_cast<std::int64_t>(index);
    const LayerNames& from = names.layers[index];
    LayerWeights& layer = target_.layers[index];
    vector("input_norm", {&from.input_norm}, layer.input_norm);
    vector("post_attention_norm", {&from.post_attention_norm}, layer.post_attention_norm);
    add_set(from.mixer, layer.mixer);
    add_set(from.feed_forward, layer.feed_forward);
  }

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

  /// The weights of a mixer or feed-forward part, without experts that are not wanted.
  void add_set(const std::vector<NamedWeight>& names, WeightSet& targets) {
    std::vector<const NamedWeight*> wanted;
    for (const NamedWeight& weight : names) {
      const bool is_wanted = weight.role != WeightRole::expert ||
                             request_.experts.contains(layer_index_, weight.expert);
      if (is_wanted) wanted.push_back(&weight);
    }
    targets.resize(wanted.size());  // once: the plan points into it
    const auto first_planned = std::ssize(plan_.weights);
    for (std::size_t first = 0; first < wanted.size();) {
      std::size_t end = first + 1;
      while (end < wanted.size() && wanted[end]->joins_previous) ++end;
      const std::span group(wanted.data() + first, end - first);
      if (!group.front()->parts.empty()) add_group(group, &targets[first]);
      if (group.front()->role == WeightRole::expert) set_expert(group, &targets[first]);
      first = end;
    }
    if (request_.input_scales != InputScales::none) {
      set_input_scales(names, std::span(plan_.weights).subspan(narrow<std::size_t>(first_planned)));
    }
  }

  static bool is_down(const std::string& name) { return name.ends_with(".down"); }

  /// The scales of activations that meet the layer's experts in nvfp4, of which `planned` has some;
  /// `all` are those of every rank.
  void set_input_scales(const std::vector<NamedWeight>& all, std::span<PlannedWeight> planned) {
    const auto takes_one = [](const PlannedWeight& weight) {
      return weight.expert >= 0 && weight.packing.layout.format == Format::nvfp4;
    };
    if (std::ranges::none_of(planned, takes_one)) return;
    for (const PlannedWeight& weight : planned) {
      const bool is_stored = weight.stored != nullptr || weight.packing.keeps_codes;
      if (!takes_one(weight) || is_stored) continue;
      if (request_.input_scales == InputScales::own) return;
      fail(ErrorKind::usage,
           "--activation-scales checkpoint: weight \"{}\" becomes nvfp4 when it is loaded, for "
           "which the checkpoint has no scales of activations",
           weight.name);
    }
    std::map<std::string, float> own;
    std::array<float, 2> largest{};  // of gate and up, and of down
    for (const NamedWeight& weight : all) {
      const bool is_matrix = weight.form == WeightForm::matrix && !weight.parts.empty();
      if (weight.role != WeightRole::expert || !is_matrix) continue;
      const float scale = input_scale(weight);
      own[layer_ + weight.name] = scale;
      float& most = largest[is_down(weight.name) ? 1 : 0];
      most = std::max(most, scale);
    }
    for (PlannedWeight& weight : planned) {
      if (!takes_one(weight)) continue;
      const bool is_own = request_.input_scales == InputScales::own;
      weight.input_scale = is_own ? own.at(weight.name) : largest[is_down(weight.name) ? 1 : 0];
    }
  }

  /// Of one matrix; 0 if there is none, which is an error where scales are needed.
  [[nodiscard]] float input_scale(const NamedWeight& weight) const {
    const bool is_needed = request_.input_scales == InputScales::largest;
    const TensorSlice& slice = weight.parts.front();
    const auto refuse = [&](std::string_view what) {
      fail(ErrorKind::file, "expert {} of layer {}: {}; --activation-scales runtime needs none",
           weight.expert, layer_index_, what);
    };
    if (files_.packed() != nullptr) {
      const PackedEntry& entry = files_.packed()->at(layer_ + weight.name);
      if (is_needed && !(entry.input_scale > 0)) {
        refuse(fmt::format("{}: weight \"{}\" has no scale of activations (input_scale)",
                           files_.path_of(kManifestFile), entry.name));
      }
      return entry.input_scale;
    }
    std::string missing;
    try {
      const auto scale = find_input_scale(StoredMatrix(*files_.checkpoint(), slice));
      if (scale) return *scale;
      missing = fmt::format("{}: no tensor \"{}\"", files_.directory(),
                            companion_names(slice.tensor, "input_scale").front());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::file) throw;
      missing = error.what();
    }
    if (is_needed) refuse(missing);
    return 0;
  }

  /// Of the weights that were planned last.
  void set_expert(std::span<const NamedWeight* const> group, Weight* targets) {
    const std::int64_t expert = group.front()->expert;
    const bool on_device =
        request_.on_device != nullptr && request_.on_device->contains(layer_index_, expert);
    for (std::size_t i = 0; i < group.size(); ++i) {
      targets[i].on_device = on_device;
      PlannedWeight& weight = plan_.weights[plan_.weights.size() - group.size() + i];
      weight.layer = layer_index_;
      weight.expert = expert;
      if (on_device && weight.matrix != nullptr) weight.home = WeightHome::device;
    }
  }

  /// A weight, or several that one product reads together.
  void add_group(std::span<const NamedWeight* const> group, Weight* targets) {
    const NamedWeight& first = *group.front();
    Slices slices;
    for (const TensorSlice& slice : first.parts) slices.push_back(&slice);
    if (first.form == WeightForm::vector) {
      vector(first.name, slices, targets->vector);
      set_role(plan_.weights.back(), first.role);
    } else if (first.form == WeightForm::f32_matrix) {
      f32_matrix(first.name, slices, targets->matrix);
    } else if (group.size() == 1) {
      stacked(first.role, first.name, slices, targets->matrix);
    } else {
      std::vector<Member> members;
      for (std::size_t i = 0; i < group.size(); ++i) {
        members.push_back({group[i]->name, &group[i]->parts.front(), &targets[i].matrix});
      }
      together(first.role, members);
    }
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
      set_role(weight, role);
      if (all.empty()) continue;
      weight.parts = {all[i]};
      set_packing(weight, packing);
    }
    if (all.empty()) check_together(plan_.weights.end() - std::ssize(members));
  }

  static void set_role(PlannedWeight& weight, WeightRole role) {
    weight.role = role;
    weight.home = role == WeightRole::expert ? WeightHome::rank : WeightHome::node;
  }

  void stacked(WeightRole role, const std::string& name, const Slices& slices,
               PackedMatrix& target) {
    PlannedWeight& weight = add_matrix(name, slices, target);
    set_role(weight, role);
    if (files_.packed() != nullptr) return check_wanted(weight);
    weight.parts = sources(slices);
    set_packing(weight, request_.layouts.stacked(role, weight.parts));
  }

  /// Choices must not hang on rounding: router and shared gate stay f32 in every precision.
  void f32_matrix(const std::string& name, const Slices& slices, PackedMatrix& target) {
    PlannedWeight& weight = add_matrix(name, slices, target);
    require(weight.stored == nullptr || weight.packing.layout.format == Format::f32,
            ErrorKind::file, "{}: weight \"{}\" is {}, not f32", files_.path_of(kManifestFile),
            weight.name, layout_name(weight.packing.layout));
    weight.parts = sources(slices);
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
  std::int64_t layer_index_ = 0;
};

}  // namespace

WeightPlan plan_weights(const ModelFiles& files, const ModelConfig& config,
                        const WeightRequest& request, ModelWeights& target) {
  return reading(files, [&] { return Planner(files, request, target).plan(files.names(config)); });
}

}  // namespace moesaic
