#include "tests/train/golden_adapter.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "comm/thread_communicator.h"

namespace moesaic {
namespace {

std::vector<std::int32_t> integers(const TensorView& tensor) {
  std::vector<std::int64_t> wide(tensor.bytes.size() / 8);
  std::memcpy(wide.data(), tensor.bytes.data(), tensor.bytes.size());
  std::vector<std::int32_t> values;
  for (const std::int64_t value : wide) values.push_back(narrow<std::int32_t>(value));
  return values;
}

}  // namespace

GoldenAdapter::GoldenAdapter(const std::string& name)
    : directory_(MOESAIC_TEST_DATA "/adapters/" + name) {
  const Json json = Json::read_file(directory_ + "/golden.json");
  model_ = MOESAIC_TEST_DATA "/models/" + json.at("model").as_string();
  config_ = read_model_config(model_);
  names_ = ModelFiles::open(model_).names(config_);
  sites_ = adapter_sites(names_);
  samples_per_step_ = json.at("training").at("samples_per_step").as_int();
  files_ = AdapterFiles::open(directory_, sites_);
  golden_ = SafetensorsFile::open(directory_ + "/golden.safetensors");
  for (std::int64_t s = 0; s < json.at("samples").as_int(); ++s) {
    ids_.push_back(integers(*golden_->find("input_ids." + std::to_string(s))));
    labels_.push_back(integers(*golden_->find("labels." + std::to_string(s))));
  }
  for (std::size_t s = 0; s < ids_.size(); ++s) samples_.push_back({ids_[s], labels_[s]});
}

std::span<const TrainSample> GoldenAdapter::first_step() const {
  return std::span(samples_).first(static_cast<std::size_t>(samples_per_step_));
}

std::vector<float> GoldenAdapter::floats(const std::string& tensor) const {
  const TensorView& view = *golden_->find(tensor);
  std::vector<float> values(view.bytes.size() / 4);
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

AdapterSet GoldenAdapter::adapters_of(std::string_view prefix) const {
  std::vector<TensorView> tensors;
  for (TensorView tensor : golden_->tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    tensor.name.erase(0, prefix.size());
    tensors.push_back(std::move(tensor));
  }
  const Json config = Json::read_file(directory_ + "/adapter_config.json");
  const AdapterFiles files = AdapterFiles::parse(config, std::move(tensors), sites_, directory_);
  AdapterSet set(files.specs(), Format::f32);
  files.read(set);
  return set;
}

AdaptedRank::AdaptedRank(const GoldenAdapter& golden, const PassSetup& setup, Communicator& world)
    : pool_(setup.threads), grid_(world, setup.expert_replicas) {
  const ModelPlacement placement(
      ExpertPlacement(golden.config().num_experts, grid_.experts().size()));
  const int rank = grid_.experts().rank();
  const HeldExperts own(placement, rank);
  const LoadOptions options{.precision = setup.precision,
                            .layouts = setup.layouts,
                            .stored = {},
                            .placement = &placement,
                            .expert_rank = rank,
                            .node = &grid_.node(),
                            .world = &world,
                            .pool = &pool_,
                            .progress = {}};
  const std::string& model = setup.model.empty() ? golden.model() : setup.model;
  weights_ = load_model_weights(ModelFiles::open(model), golden.config(), options);
  adapters_ = std::make_unique<AdapterSet>(specs_of_rank(golden.files().specs(), own),
                                           weight_format(setup.precision));
  golden.files().read(*adapters_);
  adapters_->pack(pool_);
  attach_adapters(*adapters_, golden.names(), own, *weights_);
  const Compute compute{.isa = setup.isa,
                        .vector = &find_vector_kernels(setup.isa),
                        .pool = &pool_,
                        .int4_activations = setup.int4_activations};
  transformer_ =
      std::make_unique<Transformer>(golden.config(), *weights_, grid_.experts(), compute);
}

namespace {

/// The passes of one rank over its own samples. Every rank makes `rounds` calls.
PassResults run_rank(AdaptedRank& rank, std::span<const TrainSample> own, const PassSetup& setup,
                     std::size_t rounds) {
  SamplePass pass(rank.transformer(), setup.recompute);
  AdapterGradients gradients(rank.adapters().places(), find_vector_kernels(setup.isa));
  if (setup.is_used) {
    pass.backward(pass.forward(own.first(std::min<std::size_t>(1, own.size()))), gradients);
    (void)pass.evaluate(own);
    ThreadPool pool(setup.threads);
    gradients.clear(pool);
  }
  std::vector<MicroBatch> batches;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t first = std::min(round * setup.samples_at_once, own.size());
    batches.push_back(
        pass.forward(own.subspan(first, std::min(setup.samples_at_once, own.size() - first)), {},
                     setup.choices));
  }
  PassResults results;
  for (MicroBatch& batch : batches) {
    results.losses.insert(results.losses.end(), batch.losses.begin(), batch.losses.end());
    for (const RouterStatistics& layer : batch.routers) {
      if (!layer.chosen.empty()) results.routers.add(layer);
    }
    pass.backward(std::move(batch), gradients);
  }
  for (std::int64_t index = 0; index < rank.adapters().size(); ++index) {
    const auto& [a, b] = rank.adapters().places()[static_cast<std::size_t>(index)];
    std::vector<std::int64_t>& sums = results.sums[rank.adapters().spec(index).site.module];
    for (const FactorPlace& place : {a, b}) {
      const auto first = gradients.sums().begin() + place.first;
      sums.insert(sums.end(), first, first + place.size());
    }
  }
  return results;
}

/// Adds what one rank found; its losses are those of samples rank, rank + ranks, ...
void add(const PassResults& of_rank, int rank, int ranks, PassResults& all) {
  for (std::size_t i = 0; i < of_rank.losses.size(); ++i) {
    all.losses[static_cast<std::size_t>(rank) + i * static_cast<std::size_t>(ranks)] =
        of_rank.losses[i];
  }
  if (!of_rank.routers.chosen.empty()) all.routers.add(of_rank.routers);
  for (const auto& [module, sums] : of_rank.sums) {
    std::vector<std::int64_t>& to = all.sums[module];
    to.resize(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) to[i] += sums[i];
  }
}

}  // namespace

PassResults run_pass(const GoldenAdapter& golden, std::span<const TrainSample> samples,
                     const PassSetup& setup) {
  PassResults results;
  results.losses.resize(samples.size());
  std::mutex mutex;
  run_thread_ranks(setup.ranks, [&](Communicator& world) {
    AdaptedRank rank(golden, setup, world);
    std::vector<TrainSample> own;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      if (static_cast<int>(s) % setup.ranks == world.rank()) own.push_back(samples[s]);
    }
    const std::size_t rounds = (samples.size() + setup.samples_at_once - 1) / setup.samples_at_once;
    const PassResults found = run_rank(rank, own, setup, rounds);
    const std::scoped_lock lock(mutex);
    add(found, world.rank(), setup.ranks, results);
  });
  return results;
}

}  // namespace moesaic
