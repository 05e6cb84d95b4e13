#include "src/model/model_adapters.h"

#include <string_view>
#include <unordered_map>

#include "base/error.h"

namespace moesaic {
namespace {

/// Gives weights their adapters.
class Attachment {
 public:
  Attachment(const AdapterSet& set, const HeldExperts& experts) : set_(set), experts_(experts) {
    for (std::int64_t index = 0; index < set.size(); ++index) {
      by_module_.emplace(set.spec(index).site.module, index);
    }
  }

  /// `weights` are those of `names`, of a layer, without other ranks' experts.
  void attach(std::int64_t layer, const std::vector<NamedWeight>& names, WeightSet& weights) {
    auto weight = weights.begin();
    for (const NamedWeight& name : names) {
      if (name.role == WeightRole::expert && !experts_.contains(layer, name.expert)) continue;
      (weight++)->adapter = adapter_of(name);
    }
  }

  [[nodiscard]] std::int64_t attached() const noexcept { return attached_; }

 private:
  /// Adapters of one weight stand one after the other.
  const Adapter* adapter_of(const NamedWeight& weight) {
    std::int64_t first = -1;
    std::int64_t count = 0;
    for (const AdapterSite& site : weight.sites) {
      const auto found = by_module_.find(site.module);
      if (found == by_module_.end()) continue;
      if (count == 0) first = found->second;
      require(found->second == first + count++, ErrorKind::internal,
              "adapters of {} stand in another order than its rows", site.module);
    }
    attached_ += count;
    return count == 0 ? nullptr : &set_.of_matrix(first, count);
  }

  const AdapterSet& set_;
  HeldExperts experts_;
  std::unordered_map<std::string_view, std::int64_t> by_module_;
  std::int64_t attached_ = 0;
};

}  // namespace

std::vector<AdapterSite> adapter_sites(const ModelNames& names) {
  std::vector<AdapterSite> sites;
  for (const LayerNames& layer : names.layers) {
    for (const auto* weights : {&layer.mixer, &layer.feed_forward}) {
      for (const NamedWeight& weight : *weights) {
        sites.insert(sites.end(), weight.sites.begin(), weight.sites.end());
      }
    }
  }
  return sites;
}

void attach_adapters(const AdapterSet& set, const ModelNames& names, const HeldExperts& experts,
                     ModelWeights& weights) {
  Attachment attachment(set, experts);
  for (std::size_t l = 0; l < names.layers.size(); ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    attachment.attach(layer, names.layers[l].mixer, weights.layers[l].mixer);
    attachment.attach(layer, names.layers[l].feed_forward, weights.layers[l].feed_forward);
  }
  require(attachment.attached() == set.size(), ErrorKind::internal,
          "{} of {} adapters have a matrix on this rank", attachment.attached(), set.size());
}

std::unique_ptr<AdapterSet> load_adapter(const AdapterLoad& load, ModelWeights& weights) {
  auto set = std::make_unique<AdapterSet>(specs_of_rank(load.files.specs(), load.experts),
                                          weight_format(weights.precision));
  load.files.read(*set);
  set->pack(load.pool);
  attach_adapters(*set, load.names, load.experts, weights);
  return set;
}

}  // namespace moesaic
