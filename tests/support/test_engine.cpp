#include "tests/support/test_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "kernels/sum_order.h"
#include "src/checkpoint/safetensors.h"

namespace moesaic {

TestEngine::TestEngine(const EngineSetup& setup, Communicator& world)
    : config_(read_model_config(setup.directory, setup.families)),
      pool_(setup.threads),
      grid_(world, setup.expert_replicas) {
  pool_.set_between_tasks([&world] { world.progress(); }, std::chrono::microseconds(20));
  const ModelPlacement placement = setup.placement.value_or(
      ModelPlacement(ExpertPlacement(config_.num_experts, grid_.experts().size())));
  const LoadOptions options{.precision = setup.precision,
                            .layouts = setup.layouts,
                            .stored = setup.stored,
                            .placement = &placement,
                            .expert_rank = grid_.experts().rank(),
                            .node = &grid_.node(),
                            .world = &world,
                            .pool = &pool_,
                            .progress = {}};
  weights_ = load_model_weights(ModelFiles::open(setup.directory), config_, options);
  if (!setup.lora.empty()) {
    const ModelNames names = weights_->files.names(config_);
    const AdapterFiles files = AdapterFiles::open(setup.lora, adapter_sites(names));
    const HeldExperts held(placement, grid_.experts().rank());
    adapters_ = load_adapter({files, names, held, pool_}, *weights_);
  }
  if (setup.adapters) {
    const ModelNames names = weights_->files.names(config_);
    const HeldExperts held(placement, grid_.experts().rank());
    adapters_ = std::make_unique<AdapterSet>(setup.adapters(adapter_sites(names), held));
    adapters_->pack(pool_);
    attach_adapters(*adapters_, names, held, *weights_);
  }
  const Compute compute{.isa = setup.isa,
                        .vector = &find_vector_kernels(setup.isa),
                        .pool = &pool_,
                        .int4_activations = setup.int4_activations};
  transformer_ = std::make_unique<Transformer>(config_, *weights_,
                                               ExpertGroup(grid_.experts(), setup.moe), compute);
}

ModelPlacement shuffled_placement(const ModelConfig& config, int ranks) {
  std::mt19937 random(3);
  std::vector<ExpertPlacement> layers;
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    std::vector<double> rows(static_cast<std::size_t>(config.num_experts));
    for (double& row : rows) row = static_cast<double>(random());
    layers.push_back(ExpertPlacement::balanced(rows, ranks));
  }
  return ModelPlacement(std::move(layers));
}

std::vector<float> run_sequence(Transformer& transformer, std::span<const std::int32_t> tokens,
                                std::int64_t chunk, std::int64_t prompt_tokens) {
  KvPool pool(transformer.config(), transformer.precision());
  Sequence sequence = pool.make_sequence(prompt_tokens);
  std::vector<float> result;
  while (!tokens.empty()) {
    const auto now = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(chunk)));
    tokens = tokens.subspan(now.size());
    const SequenceChunk part{
        .sequence = &sequence, .tokens = now, .logits = SequenceChunk::Logits::all};
    const MatrixView<const float> logits = transformer.forward({&part, 1});
    result.insert(result.end(), logits.data(), logits.data() + logits.rows() * logits.cols());
  }
  return result;
}

std::vector<float> logits_on_ranks(int ranks, const EngineSetup& setup,
                                   std::span<const std::int32_t> tokens, std::int64_t chunk,
                                   std::int64_t prompt_tokens) {
  const std::int64_t length = std::ssize(tokens);
  const std::int64_t at_once = chunk > 0 ? chunk : length;
  std::vector<float> result;
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(setup, world);
    if (world.rank() == 0) {
      result = run_sequence(engine.transformer(), tokens, at_once,
                            prompt_tokens >= 0 ? prompt_tokens : length);
      return;
    }
    for (std::int64_t first = 0; first < length; first += at_once) {
      (void)engine.transformer().forward({});
    }
  });
  return result;
}

GoldenLogits read_golden_logits(const std::string& file) {
  const SafetensorsFile tensors = SafetensorsFile::open(file);
  const auto floats = [&](std::string_view name) {
    std::vector<float> values;
    if (const TensorView* tensor = tensors.find(name)) {
      values.resize(tensor->bytes.size() / 4);
      std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    }
    return values;
  };
  GoldenLogits golden{
      .input_ids = {}, .logits = floats("logits"), .logits_stepwise = floats("logits_stepwise")};
  const TensorView* ids = tensors.find("input_ids");
  require(ids != nullptr, ErrorKind::file, "{}: no input_ids", file);
  for (std::size_t i = 0; i < ids->bytes.size(); i += 8) {
    std::int64_t id = 0;
    std::memcpy(&id, ids->bytes.data() + i, 8);
    golden.input_ids.push_back(narrow<std::int32_t>(id));
  }
  return golden;
}

double relative_l2(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i];
    const double y = b[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

std::vector<Isa> tile_order_isas() {
  std::vector<Isa> isas = supported_isas();
  std::erase_if(isas, [](Isa isa) { return !has_tile_order(isa); });
  return isas;
}

}  // namespace moesaic
