#include "launch/job/session.h"
#include "launch/job/gpu_graphs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/small_file.h"
#include "launch/job/adapter_text.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/gpu_choice.h"
#include "launch/job/placement_choice.h"
#include "launch/job/rank_gpu.h"
#include "launch/job/same_weights.h"
#include "src/model/inventory.h"
#include "src/model/weight_layout.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {
namespace {

/// Of everything that ranks must have in common: config.json, names, types and shapes.
std::uint64_t model_fingerprint(const ModelFiles& files) {
  std::string text = read_file(files.path_of("config.json"), kMaxConfigBytes);
  if (files.packed() != nullptr) return checksum(text) ^ files.packed()->fingerprint();
  for (const TensorView* tensor : files.checkpoint()->tensors()) {
    text += tensor->name;
    text += dtype_name(tensor->dtype);
    text += format_shape(tensor->shape);
  }
  return checksum(text);
}

std::uint64_t adapter_fingerprint(const AdapterFiles& adapter) {
  std::ostringstream text;
  for (const AdapterSpec& spec : adapter.specs()) {
    text << spec.site.module << ' ' << spec.rank << ' ' << spec.scale << ' ' << spec.shares_a;
  }
  return checksum(text.str());
}

/// Tensors that the model does not ask for may mean that config.json is another model's.
std::string unknown_tensors_text(const OpenModel& model) {
  if (model.files.checkpoint() == nullptr) return "";
  const Checkpoint& checkpoint = *model.files.checkpoint();
  const std::vector<std::string> unknown =
      take_inventory(checkpoint, model.files.names(model.config)).unknown;
  if (unknown.empty()) return "";
  return fmt::format("{}: {} {} not used, such as {}", checkpoint.directory(), unknown.size(),
                     unknown.size() == 1 ? "tensor is" : "tensors are", unknown.front());
}

/// What --expert-format, --dense-format and --head-format ask for.
WantedLayouts wanted_layouts(const Options& options) {
  const auto check = [&](std::string_view option, const std::optional<Layout>& wanted) {
    require(!wanted || options.precision != Precision::f32, ErrorKind::usage,
            "--{} {} does not go with --precision fp32, which keeps all weights in f32", option,
            wanted_name(wanted));
  };
  check("expert-format", options.expert_format);
  check("dense-format", options.dense_format);
  check("head-format", options.head_format);
  return {
      .experts = options.expert_format, .dense = options.dense_format, .head = options.head_format};
}

/// Says of options that ask for another kind of product that no weight can have it.
void tell_without_effect(const Runtime& runtime, const ModelWeights& weights) {
  std::array<std::int64_t, 2> found{};  // of any rank: weights for each of the two options
  const auto look_at = [&](const PackedMatrix& matrix) {
    if (matrix.rows == 0) return;
    found[0] |= allows_int8_groups(matrix.layout) ? 1 : 0;
    found[1] |= matrix.layout.format == Format::nvfp4 ? 1 : 0;
  };
  look_at(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) {
    for (const WeightSet* set : {&layer.mixer, &layer.feed_forward}) {
      for (const Weight& weight : *set) look_at(weight.matrix);
    }
  }
  runtime.world().max(std::span<std::int64_t>(found));
  const auto tell = [&](bool asked, bool has_effect, std::string_view option,
                        std::string_view layout) {
    if (!asked || has_effect) return;
    runtime.log().once(LogLevel::warning, "--{} has no effect: no weights are in {}", option,
                       layout);
  };
  const Options& options = runtime.options();
  tell(options.int4_activations == Int4Activations::int8, found[0] != 0, "int4-activations int8",
       "int4_group128");
  tell(options.nvfp4_activations == Nvfp4Activations::nvfp4, found[1] != 0,
       "nvfp4-activations nvfp4", "nvfp4");
}

void require_plain_experts(const OpenModel& model, std::string_view option) {
  if (!model.adapter) return;
  for (const AdapterSpec& spec : model.adapter->specs()) {
    require(spec.site.kind != AdapterKind::experts, ErrorKind::usage,
            "{}: the adapter of --lora has parts for experts (\"{}\"), which do not go with it; "
            "moesaic convert --merge adds them to the weights",
            option, spec.site.module);
  }
}

void require_input_scales(const Options& options, const OpenModel& model) {
  if (options.activation_scales == ActivationScales::runtime) return;
  require(options.nvfp4_activations == Nvfp4Activations::nvfp4, ErrorKind::usage,
          "--activation-scales checkpoint is for --nvfp4-activations nvfp4");
  require_plain_experts(model, "--activation-scales checkpoint");
}

/// What --gpu-experts asks for; null: no experts on GPUs. Collective.
std::unique_ptr<RankGpu> choose_gpu(const Runtime& runtime, const OpenModel& model,
                                    const RankGpu::Model& planned) {
  agree(runtime.world(), [&] {
    require_gpu_options(runtime.options());
    require_gpu_uses(runtime.command());
  });
  if (runtime.options().has_gpu_experts()) {
    agree(runtime.world(), [&] { require_plain_experts(model, "--gpu-experts"); });
    return std::make_unique<RankGpu>(runtime, planned);
  }
  agree(runtime.world(), [&] { require_graph_use(runtime.options()); });
  tell_unused_nccl(runtime);
  const int unused = device_images().empty() ? 0 : count_gpus();
  if (unused > 0) {
    runtime.log().once(LogLevel::info, "note: there {} here: --gpu-experts uses {}",
                       unused == 1 ? "is a GPU" : fmt::format("are {} GPUs", unused),
                       unused == 1 ? "it" : "them");
  }
  return nullptr;
}

/// Collective.
OpenModel read_model(const Runtime& runtime, const Options& options) {
  OpenModel model;
  std::uint64_t print = 0;
  std::uint64_t adapter_print = 0;
  std::string unknown;
  agree(runtime.world(), [&] {
    model = open_model(options);
    if (const PackedDirectory* packed = model.files.packed()) {
      packed->verify_copies(options.verify);
    }
    print = model_fingerprint(model.files);
    if (model.adapter) adapter_print = adapter_fingerprint(*model.adapter);
    if (runtime.is_first()) unknown = unknown_tensors_text(model);
  });
  const std::array<Shared, 2> shared = {
      {{.what = "the model's config.json or tensors", .fingerprint = print},
       {.what = "the adapter of --lora", .fingerprint = adapter_print}}};
  require_same(runtime.world(), shared);
  require_same_weights(runtime, model.files);
  if (!unknown.empty()) runtime.log().once(LogLevel::warning, "{}", unknown);
  return model;
}

}  // namespace

OpenModel open_model(const Options& options) {
  require(!options.model.empty(), ErrorKind::usage, "no model: --model DIR says which");
  ModelFiles files = ModelFiles::open(options.model);  // whose errors tell more than the next one's
  return open_model(options, std::move(files), read_model_config(options.model));
}

OpenModel open_model(const Options& options, ModelFiles files, ModelConfig config) {
  OpenModel model{
      .files = std::move(files), .config = std::move(config), .layouts = wanted_layouts(options)};
  if (options.lora) {
    model.adapter =
        AdapterFiles::open(*options.lora, adapter_sites(model.files.names(model.config)));
    model.adapter_directory = *options.lora;
  }
  require_input_scales(options, model);
  return model;
}

OpenModel read_model(const Runtime& runtime) {
  return read_model(runtime, runtime.options());
}

void warn_of_context(const Log& log, const Options& options, const ModelConfig& config) {
  const std::string note =
      context_note(fmt::format("--ctx-size {}", options.ctx_size), options.ctx_size, config);
  if (!note.empty()) log.once(LogLevel::warning, "{}", note);
}

OpenModel open_model(const Runtime& runtime) {
  return open_model(runtime, runtime.options().lora);
}

OpenModel open_model(const Runtime& runtime, std::optional<std::string> lora) {
  Options options = runtime.options();
  options.lora = std::move(lora);
  OpenModel model = read_model(runtime, options);
  agree(runtime.world(), [&] {
    require_experts(model.config.num_experts, runtime.world().size(),
                    runtime.grid().expert_replicas());
    check_moe_options(expert_group(runtime).options, model.config);
  });
  warn_of_context(runtime.log(), options, model.config);
  return model;
}

ExpertGroup expert_group(const Runtime& runtime) {
  const Options& options = runtime.options();
  const bool can_gain = runtime.num_nodes() > 1;  // in a node rows do not travel by themselves
  const bool is_automatic = options.half_batches == HalfBatches::automatic;
  return {runtime.grid().experts(),
          {.defer = options.defer,
           .wire = options.wire,
           .combine = options.combine,
           .int8_rows = can_gain,
           .half_batches = is_automatic && !can_gain ? HalfBatches::off : options.half_batches}};
}

LoadOptions Engine::load_options(const Runtime& runtime, const OpenModel& model,
                                 Progress& progress) const {
  const bool has_scales = runtime.options().activation_scales == ActivationScales::checkpoint;
  return {
      .precision = runtime.precision(),
      .layouts = model.layouts,
      .stored = {.map = runtime.options().mmap, .verify = verifies_packed(runtime, model.files)},
      .input_scales = has_scales ? InputScales::largest : InputScales::none,
      .placement = &placement_,
      .expert_rank = runtime.grid().experts().rank(),
      .node = &runtime.grid().node(),
      .world = &runtime.world(),
      .pool = runtime.compute().pool,
      .progress =
          [&](std::int64_t done, std::int64_t total) {
            progress.update(done, total);
            runtime.interruption().leave_if_wanted("while the model was loaded: nothing is lost");
          },
      .waiting = waiting_notice(runtime.log(), "loading")};
}

Engine::Engine(const Runtime& runtime, const OpenModel& model, const EngineWork& work)
    : placement_(place_experts(runtime, model.config)) {
  Progress progress("loading", !runtime.is_first() || !runtime.log().enabled(LogLevel::info));
  LoadOptions options = load_options(runtime, model, progress);
  std::optional<ModelLoader> loader;
  agree(runtime.world(), [&] { loader.emplace(model.files, model.config, options); });
  const HeldExperts experts(placement_, options.expert_rank);
  gpu_ = choose_gpu(runtime, model, {model.config, *loader, experts, work.work});
  if (gpu_ != nullptr) {
    options.on_device = &gpu_->mask();
    options.device = gpu_->weights();
    agree(runtime.world(), [&] { loader.emplace(model.files, model.config, options); });
  }
  fit(runtime, model, work, loader->bytes());
  read_weights(runtime, *loader);
  if (work.prepare) {
    work.prepare(*weights_);
  } else if (model.adapter) {
    runtime.log().once(LogLevel::info, "adapter: {}",
                       adapter_text(model.adapter->specs(), model.adapter->description().layout));
    agree(runtime.world(), [&] {
      adapters_ = load_adapter(
          {*model.adapter, model.files.names(model.config), experts, *options.pool}, *weights_);
    });
  }
  make_transformer(runtime, model.config);
}

void Engine::fit(const Runtime& runtime, const OpenModel& model, const EngineWork& work,
                 const WeightBytes& bytes) {
  Workload whole = work.work;
  if (model.adapter && !work.prepare) {
    const HeldExperts experts(placement_, runtime.grid().experts().rank());
    whole.adapter_bytes += AdapterSet::bytes(specs_of_rank(model.adapter->specs(), experts),
                                             weight_format(runtime.precision()));
  }
  is_smaller_ = work.smaller && !memory_fits(runtime, model.config, bytes, whole);
  memory_ = check_memory(runtime, model.config, bytes, is_smaller_ ? *work.smaller : whole);
}

void Engine::read_weights(const Runtime& runtime, ModelLoader& loader) {
  const WeightBytes& bytes = loader.bytes();
  load_.experts = bytes.experts;
  load_.others = bytes.others;
  (void)runtime.interruption();  // what is told from here on may be answered by a signal
  runtime.world().sum(std::span<std::int64_t>(load_.experts));
  runtime.log().once(LogLevel::info, "weights: {}{}", weights_text(load_.experts, load_.others),
                     bytes.mapped_bytes > 0 ? ", where they are mapped" : "");
  weights_ = loader.load();
  for (const std::string& note : weights_->notes) runtime.log().once(LogLevel::debug, "{}", note);
  tell_without_effect(runtime, *weights_);
}

ExpertGroup Engine::group(const Runtime& runtime) const {
  ExpertGroup group = expert_group(runtime);
  if (gpu_ != nullptr && gpu_->has_road()) group.options.half_batches = HalfBatches::off;
  if (gpu_ != nullptr && gpu_->weights() != nullptr) group.device = gpu_->workspace();
  return group;
}

void Engine::make_transformer(const Runtime& runtime, const ModelConfig& config) {
  if (gpu_ != nullptr && gpu_->weights() != nullptr) gpu_->weights()->finish();
  transformer_ =
      std::make_unique<Transformer>(config, *weights_, group(runtime), runtime.compute());
  for (const LoadReport& report : gather_values(runtime.world(), weights_->report)) {
    load_.read_bytes += report.read_bytes;
    load_.seconds = std::max(load_.seconds, report.seconds);
  }
}

Engine::~Engine() {
  if (gpu_ != nullptr) gpu_->disconnect();
}

StepOptions text_options(const Runtime& runtime, const ModelConfig& config, const Workload& work,
                         std::int64_t capacity, const Tokenizer* tokenizer) {
  const Options& options = runtime.options();
  return {.batch_tokens = options.batch_size,
          .parallel = options.parallel,
          .cache_bytes = KvPool::bytes_of(config, runtime.precision(), capacity, work.sequences),
          .tokenizer = tokenizer,
          .stop_wanted = [&runtime] { return runtime.interruption().wanted(); }};
}

}  // namespace moesaic
