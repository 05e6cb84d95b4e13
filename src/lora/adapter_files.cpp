#include "src/lora/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "base/directory.h"
#include "base/error.h"
#include "src/checkpoint/matrix_source.h"
#include "src/lora/module_factors.h"

namespace moesaic {
namespace {

/// Whether halves [first, end) of a row hold anything but zeros.
bool has_values(std::span<const float> row, std::size_t first, std::size_t end) {
  const auto half = row.size() / 2;
  return std::ranges::any_of(row.subspan(first * half, (end - first) * half),
                             [](float value) { return value != 0; });
}

/// In the order of an AdapterSet: those of experts behind the others.
std::vector<AdapterSite> targeted_sites(const PeftConfig& config, AdapterLayout layout,
                                        std::span<const AdapterSite> sites) {
  std::vector<AdapterSite> targeted;
  std::ranges::copy_if(sites, std::back_inserter(targeted), [&](const AdapterSite& site) {
    return !config.hit_name(site, layout).empty();
  });
  put_common_first(targeted);
  return targeted;
}

void require_shape(const TensorView& tensor, std::int64_t rows, std::int64_t cols,
                   std::int64_t rank) {
  const std::vector<std::int64_t> expected = {rows, cols};
  require(tensor.shape == expected, ErrorKind::file, "{}: \"{}\" is {}, not {} (rank {} by {})",
          tensor.file, tensor.name, format_shape(tensor.shape), format_shape(expected), rank,
          kAdapterConfigFile);
}

void require_finite(std::span<const float> values, const TensorView& tensor) {
  require(std::ranges::all_of(values, [](float value) { return std::isfinite(value); }),
          ErrorKind::file, "{}: \"{}\" holds a value that is not finite", tensor.file, tensor.name);
}

/// Alpha of a part of a fused module; whole numbers stay whole through a factor of sqrt(2).
double alpha_of_part(double alpha, std::int64_t rank, std::int64_t file_rank, bool stabilised) {
  const double part = static_cast<double>(rank) / static_cast<double>(file_rank);
  const double exact = alpha * (stabilised ? std::sqrt(part) : part);
  return std::abs(exact - std::round(exact)) < 1e-9 ? std::round(exact) : exact;
}

/// A run that was killed has checkpoints and no adapter yet.
void require_adapter(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder / kAdapterConfigFile, error)) return;
  std::string last;  // checkpoint-10 comes after checkpoint-9
  for (const auto& entry : entries_of(folder, error)) {
    if (!std::filesystem::exists(entry.path() / kAdapterConfigFile, error)) continue;
    std::string path = entry.path().string();
    if (std::pair(path.size(), path) > std::pair(last.size(), last)) last = std::move(path);
  }
  require(last.empty(), ErrorKind::file, "{}: has no adapter itself; {} has one", folder.string(),
          last);
}

/// A key as the text model alone has it: PEFT's of a model that reads images too have the place of
/// the text model in it.
std::string text_key(const std::string& key) {
  const std::string text = "base_model.model.model.";
  for (const std::string_view whole :
       {"base_model.model.model.language_model.", "base_model.model.language_model.model."}) {
    if (key.starts_with(whole)) return text + key.substr(whole.size());
  }
  return key;
}

}  // namespace

/// Whether B of gates (above) and ups has blocks: zeros above in the ranks of ups, below in those
/// of gates.
AdapterFiles::Fusion AdapterFiles::fusion_of(const Module& module) {
  const ModuleFactors factors(module.layout, *module.a, *module.b);
  const MatrixSource b(factors.b());
  std::vector<float> row(static_cast<std::size_t>(b.cols()));
  Fusion found = Fusion::unknown;
  for (std::int64_t o = 0; o < b.rows(); ++o) {
    b.read_rows(o, 1, row);
    const std::size_t other = o < b.rows() / 2 ? 1 : 0;
    if (has_values(row, other, other + 1)) return Fusion::shared;
    if (has_values(row, 0, 2)) found = Fusion::blocks;
  }
  return found;
}

/// The layout whose parameters the configuration targets. Where it targets none, names of experts'
/// matrices are those of single experts, unless transformers 5 alone has the family and the file no
/// such expert: there they hit shared experts and dense layers.
AdapterLayout AdapterFiles::layout_of(const PeftConfig& config,
                                      std::span<const AdapterSite> sites) const {
  std::vector<AdapterSite> fused;
  std::ranges::copy_if(sites, std::back_inserter(fused), [&](const AdapterSite& site) {
    return !site.fused5.empty() && !config.hit_name(site, AdapterLayout::transformers5).empty();
  });
  if (fused.empty()) {
    const auto is_of_experts = [](const TensorView& tensor) {
      return tensor.name.find(".experts.") != std::string::npos;
    };
    const bool has_names4 = sites.empty() || sites.front().in_transformers4 ||
                            std::ranges::any_of(*tensors_, is_of_experts);
    return has_names4 ? AdapterLayout::transformers4 : AdapterLayout::transformers5;
  }
  const bool lie_across = std::ranges::all_of(fused, &AdapterSite::lies_across);
  return lie_across ? layout_by_shape(fused) : AdapterLayout::transformers5;
}

/// Both layouts have parameters that lie across, under one name: shapes tell which it is.
AdapterLayout AdapterFiles::layout_by_shape(std::span<const AdapterSite> fused) const {
  const std::vector<PeftModule> modules = peft_modules(fused, AdapterLayout::transformers5);
  for (const PeftModule& module : modules) {
    const auto a = std::ranges::find(*tensors_, module.a_key(), &TensorView::name);
    if (a == tensors_->end() || a->shape.size() != 2 || module.in == module.out) continue;
    return a->shape[1] == module.out ? AdapterLayout::transformers4 : AdapterLayout::transformers5;
  }
  const PeftModule& first = modules.front();
  require(first.in != first.out, ErrorKind::file,
          "{}: \"{}\" has {} inputs and outputs: whether PEFT wrote its factors with transformers "
          "4, where they are swapped, or 5, only shapes of another parameter could tell",
          where_, first.target, first.in);
  return AdapterLayout::transformers5;  // a factor is missing
}

/// An adapter in memory, and where its factors stand in the file.
struct AdapterFiles::Use {
  AdapterFactors<float> factors;
  const Place* place;
  bool shares_a;
};

AdapterFiles AdapterFiles::open(const std::string& directory, std::span<const AdapterSite> sites) {
  const std::filesystem::path folder(directory);
  require_adapter(folder);
  const Json config = Json::read_file((folder / kAdapterConfigFile).string());
  auto file = std::make_shared<const SafetensorsFile>(
      SafetensorsFile::open((folder / kAdapterTensorsFile).string()));
  AdapterFiles files =
      reading(*file, [&] { return parse(config, file->tensors(), sites, directory); });
  files.file_ = std::move(file);
  return files;
}

AdapterFiles AdapterFiles::parse(const Json& config, std::vector<TensorView> tensors,
                                 std::span<const AdapterSite> sites, const std::string& where) {
  AdapterFiles files;
  files.where_ = where;
  files.tensors_ = std::make_shared<const std::vector<TensorView>>(std::move(tensors));
  const PeftConfig peft = PeftConfig::parse(config);
  files.description_ = {.layout = files.layout_of(peft, sites),
                        .rank_stabilised = peft.rank_stabilised(),
                        .dropout = peft.dropout(),
                        .base_model = peft.base_model()};
  const std::vector<AdapterSite> targeted = targeted_sites(peft, files.description_.layout, sites);
  require(!targeted.empty(), ErrorKind::file,
          "{}: target_modules and target_parameters hit nothing of the model, whose modules are "
          "named as {}",
          config.where(), sites.empty() ? "-" : sites.front().module);
  files.find_modules(peft, targeted);
  files.find_tensors();
  files.find_blocks();
  files.make_specs(targeted);
  files.drop_empty_parts();
  return files;
}

std::int64_t AdapterFiles::bytes() const noexcept {
  std::int64_t total = 0;
  for (const TensorView& tensor : *tensors_) total += std::ssize(tensor.bytes);
  return total;
}

void AdapterFiles::find_modules(const PeftConfig& config, std::span<const AdapterSite> targeted) {
  for (PeftModule& layout : peft_modules(targeted, description_.layout)) {
    const AdapterSite& first = targeted[static_cast<std::size_t>(layout.members.front().adapter)];
    const PeftConfig::Numbers numbers = config.numbers(config.hit_name(first, description_.layout));
    modules_.push_back({.layout = std::move(layout),
                        .rank = numbers.rank,
                        .alpha = numbers.alpha,
                        .has_own_rank = numbers.has_own_rank});
  }
}

void AdapterFiles::find_tensors() {
  std::unordered_map<std::string, const TensorView*> by_name;
  for (const TensorView& tensor : *tensors_) {
    const auto [found, is_new] = by_name.emplace(text_key(tensor.name), &tensor);
    require(is_new, ErrorKind::file, "{}: \"{}\" and \"{}\" are for one module", where_,
            found->second->name, tensor.name);
  }
  const auto take = [&](const std::string& key) {
    const auto found = by_name.find(key);
    require(found != by_name.end(), ErrorKind::file, "{}: no \"{}\", which {} asks for", where_,
            key, kAdapterConfigFile);
    const TensorView* tensor = found->second;
    by_name.erase(found);
    return tensor;
  };
  for (Module& module : modules_) {
    module.a = take(module.layout.a_key());
    module.b = take(module.layout.b_key());
    const std::int64_t ranks = module.rank * std::max<std::int64_t>(module.layout.experts, 1);
    require_shape(*module.a, ranks, module.layout.file_in(), module.rank);
    require_shape(*module.b, module.layout.file_out(), ranks, module.rank);
    (void)MatrixSource(*module.a);  // of a dtype that is read
    (void)MatrixSource(*module.b);
  }
  if (by_name.empty()) return;
  const std::string_view unknown =
      std::ranges::min_element(by_name, {}, [](const auto& entry) -> std::string_view {
        return entry.second->name;
      })->second->name;
  fail(ErrorKind::file,
       "{}: \"{}\" is for no module of the model that {} targets and that takes adapters here "
       "(attention, experts, shared experts, dense layers; routers, embeddings and the output "
       "matrix take none); keys are named as \"{}\"",
       where_, unknown, kAdapterConfigFile, modules_.front().layout.a_key());
}

/// Gates and ups that are fused share A, unless B is made of blocks. An adapter that was never
/// trained has zeros alone: it has blocks where a pattern gave the module its rank, as where gates
/// and ups with an A of their own were fused.
void AdapterFiles::find_blocks() {
  Fusion found = Fusion::unknown;
  for (Module& module : modules_) {
    module.has_blocks = module.layout.experts > 0 && module.rank % 2 == 0 &&
                        module.layout.members.front().part != MlpPart::down;
    if (found == Fusion::unknown && module.has_blocks) found = fusion_of(module);
  }
  for (Module& module : modules_) {
    module.has_blocks &=
        found == Fusion::blocks || (found == Fusion::unknown && module.has_own_rank);
  }
}

void AdapterFiles::make_specs(std::span<const AdapterSite> targeted) {
  specs_.resize(targeted.size());
  places_.resize(targeted.size());
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    const Module& module = modules_[m];
    const std::int64_t rank = module.has_blocks ? module.rank / 2 : module.rank;
    for (const PeftMember& member : module.layout.members) {
      const auto at = static_cast<std::size_t>(member.adapter);
      const bool is_up = member.part == MlpPart::up;
      specs_[at] = {
          .site = targeted[at],
          .rank = rank,
          .alpha = alpha_of_part(module.alpha, rank, module.rank, description_.rank_stabilised),
          .scale = adapter_scale(module.alpha, module.rank, description_.rank_stabilised),
          .shares_a = is_up && !module.has_blocks};
      places_[at] = {.module = m,
                     .expert = member.expert,
                     .first_rank = is_up && module.has_blocks ? rank : 0,
                     .first_out = member.first_out};
    }
  }
}

void AdapterFiles::read(AdapterSet& set) const {
  if (!file_) return read_values(set);
  reading(*file_, [&] { read_values(set); });
}

void AdapterFiles::read_values(AdapterSet& set) const {
  const std::vector<std::int64_t> here = indices_in(specs_, set);
  std::vector<std::vector<Use>> uses(modules_.size());
  for (std::int64_t i = 0; i < set.size(); ++i) {
    const Place& place = places_[static_cast<std::size_t>(here[static_cast<std::size_t>(i)])];
    uses[place.module].push_back({set.factors(i), &place, set.spec(i).shares_a});
  }
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    if (uses[m].empty()) continue;
    const Module& module = modules_[m];
    const ModuleFactors factors(module.layout, *module.a, *module.b);
    read_a(module, factors.a(), uses[m]);
    read_b(module, factors.b(), uses[m]);
  }
}

void AdapterFiles::read_a(const Module& module, const TensorView& a, std::span<const Use> uses) {
  const MatrixSource source(a);
  for (const Use& use : uses) {
    if (use.shares_a) continue;
    const MatrixView<float>& factor = use.factors.a;
    const std::span values(factor.data(), static_cast<std::size_t>(factor.rows() * factor.cols()));
    const std::int64_t first = use.place->expert * module.rank + use.place->first_rank;
    source.read_rows(first, factor.rows(), values);
    require_finite(values, a);
  }
}

void AdapterFiles::read_b(const Module& module, const TensorView& b, std::span<const Use> uses) {
  const MatrixSource source(b);
  const std::int64_t experts = std::max<std::int64_t>(module.layout.experts, 1);
  std::vector<float> row(static_cast<std::size_t>(source.cols()));
  for (std::int64_t o = 0; o < source.rows(); ++o) {
    source.read_rows(o, 1, row);
    require_finite(row, b);
    const std::size_t other = o < source.rows() / 2 ? 1 : 0;
    require(!module.has_blocks || !has_values(row, other, other + 1), ErrorKind::file,
            "{}: row {} of \"{}\" fuses gate and up as no other module does", b.file, o, b.name);
    for (const Use& use : uses) {
      const MatrixView<float>& factor = use.factors.b;
      const std::int64_t own = o - use.place->first_out;
      if (own < 0 || own >= factor.rows()) continue;
      for (std::int64_t r = 0; r < factor.cols(); ++r) {
        factor(own, r) = row[static_cast<std::size_t>(use.place->column(r, experts))];
      }
    }
  }
}

AdapterSet read_whole(const AdapterFiles& adapter) {
  AdapterSet set(adapter.specs(), Format::bf16);
  adapter.read(set);
  return set;
}

}  // namespace moesaic
