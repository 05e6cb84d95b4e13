#include "launch/sft/sft_setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/checksum.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"
#include "comm/long_work.h"
#include "launch/job/adapter_text.h"
#include "launch/job/agreement.h"
#include "launch/job/model_checksum.h"
#include "launch/job/placement_choice.h"
#include "launch/options/option_table.h"
#include "launch/options/shell_word.h"
#include "launch/sft/disk_demand.h"
#include "launch/sft/sft_adapters.h"
#include "launch/sft/sft_output.h"
#include "src/checkpoint/mapped_file.h"
#include "src/model/model_adapters.h"
#include "src/train/gradient_reduction.h"
#include "src/train/sample_order.h"

namespace moesaic {
namespace {

/// Options that decide the bytes of the result, whatever else does.
constexpr auto kDeciding = std::to_array<std::string_view>({"precision",
                                                            "expert-format",
                                                            "dense-format",
                                                            "head-format",
                                                            "int4-activations",
                                                            "seed",
                                                            "no-shuffle",
                                                            "lr",
                                                            "schedule",
                                                            "beta1",
                                                            "warmup-steps",
                                                            "beta2",
                                                            "adam-eps",
                                                            "weight-decay",
                                                            "clip",
                                                            "epochs",
                                                            "max-steps",
                                                            "global-batch-size",
                                                            "nvfp4-activations",
                                                            "numerics"});

/// Those that do through the samples and the adapters that they choose.
constexpr auto kChoosing = std::to_array<std::string_view>(
    {"model", "data", "data-format", "eval-split", "train-on", "too-long", "ctx-size",
     "chat-template", "lora", "lora-rank", "lora-alpha", "rslora", "lora-dropout", "lora-targets"});

/// Of kDeciding, those that do: with a constant rate a run may become longer.
std::vector<std::string_view> deciding(const Options& options) {
  std::vector<std::string_view> names(kDeciding.begin(), kDeciding.end());
  if (options.schedule == RateSchedule::constant) {
    std::erase(names, "epochs");
    std::erase(names, "max-steps");
  }
  return names;
}

/// Of all that decides the bytes of the result, and of nothing else.
RunDigest digest_of(const Options& options, const OpenModel& model, const SftData& data,
                    std::span<const AdapterSpec> specs, double dropout, LongWork& work) {
  RunDigest digest{.all = "",
                   .model = model_checksum(model.files.directory()),
                   .data = checksum_text(data.train.fingerprint())};
  std::string text = digest.model + digest.data;
  for (const std::string_view name : deciding(options)) {
    text += fmt::format("{}={}\n", name, value_text(*find_option(name, Verb::sft), options));
  }
  if (dropout > 0) text += fmt::format("lora-dropout={}\n", dropout);
  for (const AdapterSpec& spec : specs) {
    text += fmt::format("{} {} {}\n", spec.site.module, spec.rank, spec.scale);
  }
  if (options.lora) {
    const std::filesystem::path folder(*options.lora);
    const MappedFile tensors((folder / kAdapterTensorsFile).string());
    Checksum sum;
    std::int64_t done = 0;
    reading(tensors, [&] {
      add_to_checksum(sum, tensors.bytes(), [&](std::int64_t bytes) {
        work.advance(done += bytes, std::ssize(tensors.bytes()));
      });
    });
    text += checksum_text(sum.value());
  }
  digest.all = checksum_text(checksum(text));
  return digest;
}

/// The same on rank 0, empty on others. Collective.
RunDigest find_digest(const Runtime& runtime, const OpenModel& model, const SftData& data,
                      std::span<const AdapterSpec> specs, double dropout) {
  RunDigest digest;
  const std::string what = "reading the adapter";
  LongWork work(runtime.world(), what, waiting_notice(runtime.log(), what));
  agree_on_work(runtime.world(), work, [&] {
    if (!runtime.is_first()) return;
    digest = digest_of(runtime.options(), model, data, specs, dropout, work);
  });
  return digest;
}

/// Why a checkpoint of OUTDIR does not fit: "was made with --lr 0.1, not 0.2".
std::string other_run(const Command& command, const TrainProgress& its, const RunDigest& own_run) {
  const std::vector<std::string_view> own = deciding(command.options);
  for (const std::span<const std::string_view> names :
       {std::span<const std::string_view>(own), std::span<const std::string_view>(kChoosing)}) {
    const std::string changed = changed_options(command, names);
    if (!changed.empty()) return "was made with " + changed;
  }
  const Options& options = command.options;
  if (its.model != own_run.model) {
    return fmt::format("was made from another model than {} is now", options.model);
  }
  if (its.data != own_run.data) {
    return fmt::format("was made from other data than {} gives now", *options.data);
  }
  return "was made from another adapter, or with another dropout";
}

/// Of a run over so many samples.
std::int64_t count_steps(const Options& options, std::int64_t samples) {
  if (options.max_steps > 0) return options.max_steps;
  const SampleOrder order({.samples = samples, .batch = options.global_batch_size});
  return steps_of_epochs(options.epochs, order.steps_per_epoch());
}

}  // namespace

SftSetup::SftSetup(const Runtime& runtime, const OpenModel& model, const SftData& data)
    : runtime_(runtime),
      config_(model.config),
      lora_(model.adapter ? &*model.adapter : nullptr),
      sites_(find_adapter_sites(runtime, model)),
      specs_(choose_adapters(runtime, model, sites_)),
      dropout_(choose_dropout(runtime, lora_)),
      digest_(find_digest(runtime, model, data, specs_, dropout_)),
      replicas_(runtime.world().split(runtime.grid().experts().rank(), runtime.world().rank())),
      held_(place_experts(runtime, model.config), runtime.grid().experts().rank()),
      adapters_(specs_of_rank(specs_, held_),
                runtime.precision() == Precision::f32 ? Format::f32 : Format::bf16),
      exchange_(adapters_, specs_, runtime.world(), replicas_->rank() == 0),
      checkpoints_(runtime.options().output_dir, saved_adapter()),
      engine_(runtime, model, engine_work(model, data)),
      total_steps_(count_steps(runtime.options(), data.train.size())),
      is_converted_(model.files.checkpoint() == nullptr),
      keeps_best_(data.held_out.size() > 0 && runtime.options().eval_every > 0),
      pass_(pass_on(engine_.transformer())) {
  const Compute compute = runtime.compute();
  agree(runtime.world(), [&] {
    if (lora_ != nullptr) return lora_->read(adapters_);
    initialize(adapters_, static_cast<std::uint64_t>(runtime.options().seed));
  });
  adapters_.pack(*compute.pool);
  trainer_ = trainer_on(pass_);
}

bool SftSetup::recomputes() const {
  return engine_.is_smaller() || runtime_.options().recompute == RecomputeChoice::always;
}

SamplePass SftSetup::pass_on(Transformer& transformer) const {
  return {transformer, recomputes() ? Recompute::always : Recompute::never};
}

std::unique_ptr<Trainer> SftSetup::trainer_on(SamplePass& pass) {
  return std::make_unique<Trainer>(
      Trainer::Parts{.pass = pass,
                     .adapters = adapters_,
                     .all = specs_,
                     .ranks = {.world = runtime_.world(), .replicas = *replicas_},
                     .compute = runtime_.compute()},
      train_options());
}

/// Of gradients over ranks.
std::int64_t SftSetup::sum_bytes() const {
  const std::int64_t common = adapters_.num_common_values();
  return GradientReduction::most_bytes(runtime_.world().size(), replicas_->size(),
                                       {common, std::ssize(adapters_.masters()) - common});
}

EngineWork SftSetup::engine_work(const OpenModel& model, const SftData& data) {
  const Options& options = runtime_.options();
  const SampleSizes sizes{.longest = std::max(data.train.longest(), data.held_out.longest()),
                          .tokens = data.train.tokens(),
                          .adapter_bytes = adapters_.bytes(),
                          .adapter_values = static_cast<std::int64_t>(adapters_.masters().size()),
                          .sum_bytes = sum_bytes(),
                          .saving_bytes = saving_bytes(specs_),
                          .adapters = specs_,
                          .expert_ranks = runtime_.grid().experts().size(),
                          .dropout = dropout_,
                          .threads = runtime_.compute().pool->size()};
  const Workload work = sft_workload(options, model.config, sizes, false);
  const Workload smaller = sft_workload(options, model.config, sizes, true);
  EngineWork engine{.work = options.recompute == RecomputeChoice::always ? smaller : work};
  if (options.recompute == RecomputeChoice::automatic) engine.smaller = smaller;
  engine.prepare = [this, &model](ModelWeights& weights) {
    attach_adapters(adapters_, model.files.names(model.config), held_, weights);
  };
  return engine;
}

TrainOptions SftSetup::train_options() const {
  const Options& options = runtime_.options();
  return {.rate = {.peak = options.lr,
                   .schedule = options.schedule,
                   .warmup_steps = options.warmup_steps,
                   .total_steps = total_steps_},
          .adam = {.beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .epsilon = options.adam_eps,
                   .weight_decay = options.weight_decay},
          .clip = options.clip,
          .batch_tokens = options.batch_size,
          .skip_nonfinite = options.on_nonfinite == OnNonfinite::skip,
          .dropout = dropout_,
          .seed = static_cast<std::uint64_t>(options.seed)};
}

/// On rank 0.
void SftSetup::require_own(const TrainProgress& progress) const {
  require(progress.digest == digest_.all, ErrorKind::usage,
          "{}: {}; --overwrite in place of --resume begins anew, --lora {} with another --output "
          "goes on from its adapter",
          checkpoints_.path(progress.steps), other_run(runtime_.command(), progress, digest_),
          checkpoints_.path(progress.steps));
  require(progress.steps <= total_steps_, ErrorKind::usage,
          "{}: has more steps than the {} of the run: --max-steps or --epochs says how many",
          checkpoints_.path(progress.steps), total_steps_);
}

std::int64_t SftSetup::load_newest_checkpoint() {
  std::optional<TrainProgress> newest;
  const std::string what = "reading checkpoints";
  LongWork work(runtime_.world(), what, waiting_notice(runtime_.log(), what));
  agree_on_work(runtime_.world(), work, [&] {
    if (!runtime_.is_first()) return;
    newest = checkpoints_.find_newest(
        [&](std::int64_t done, std::int64_t total) { work.advance(done, total); });
    if (newest) require_own(*newest);
  });
  for (const std::string& damage : checkpoints_.damaged()) {
    runtime_.log().once(LogLevel::warning,
                        "{}; going on from {} instead: what comes after it is done again, and the "
                        "damaged checkpoint goes when the next one is there",
                        damage, checkpoints_.path(newest->steps));
  }
  std::array<std::int64_t, 2> counts = {newest ? newest->steps : -1, newest ? newest->updates : 0};
  runtime_.world().max(counts);
  const auto [steps, updates] = counts;
  if (steps < 0) return steps;
  trainer_->set_updates(updates);
  checkpoints_.load(steps, exchange_, train_state());
  adapters_.pack(*runtime_.compute().pool);
  return steps;
}

void SftSetup::save_checkpoint(std::int64_t steps, std::int64_t also) {
  checkpoints_.save({.steps = steps,
                     .updates = trainer_->updates(),
                     .digest = digest_.all,
                     .model = digest_.model,
                     .data = digest_.data},
                    train_state(), exchange_, {runtime_.options().keep, also});
}

TrainCheckpoints::State SftSetup::train_state() {
  return {.masters = adapters_.masters(), .moments = trainer_->moments()};
}

AdapterDescription SftSetup::description() const {
  const Options& options = runtime_.options();
  AdapterDescription its{.layout = AdapterLayout::transformers4,
                         .rank_stabilised = options.rslora,
                         .base_model = options.model};
  if (lora_ != nullptr) its = lora_->description();
  its.dropout = dropout_;
  return its;
}

void SftSetup::save_adapter(const std::string& directory) const {
  moesaic::save_adapter(directory, saved_adapter(), adapters_.masters(), exchange_);
}

DiskDemand SftSetup::disk_demand(std::int64_t done, std::int64_t there) const {
  const Options& options = runtime_.options();
  return {.steps_done = done,
          .total_steps = total_steps_,
          .save_every = options.save_every,
          .keep = options.keep + (keeps_best_ ? 1 : 0),
          .there = there,
          .checkpoint_bytes = checkpoints_.bytes(),
          .adapter_bytes = adapter_file_bytes(saved_adapter()),
          .gradients = options.grad_out};
}

void SftSetup::require_room(std::int64_t done) const {
  moesaic::require_room(runtime_.options().output_dir,
                        disk_demand(done, checkpoints_.count_full()));
}

std::int64_t SftSetup::demanded_bytes() const {
  return moesaic::demanded_bytes(disk_demand(0, 0));
}

void SftSetup::write_gradients(const std::string& path) const {
  const std::span<const std::int64_t> sums = trainer_->gradients().sums();
  std::vector<float> values;
  values.reserve(sums.size());
  for (const std::int64_t sum : sums) {
    values.push_back(static_cast<float>(static_cast<double>(sum) * trainer_->gradient_scale()));
  }
  std::optional<AdapterWriter> writer;
  if (runtime_.is_first()) writer.emplace(path, specs_, description());
  exchange_.collect(values, [&](std::int64_t index, std::span<const float> a,
                                std::span<const float> b) { writer->add(index, a, b); });
  if (writer) writer->finish();
}

std::string SftSetup::end_text() const {
  const std::string& out = runtime_.options().output_dir;
  const AdapterDescription its = description();
  const std::string model =  // what it may be merged into
      is_converted_ ? "CHECKPOINT" : shell_word(runtime_.options().model);
  const std::string convert =
      fmt::format("moesaic convert -m {} --lora {}", model, shell_word(out));
  if (loads_on_both(its, config_.peft5_takes_experts, specs_)) {
    return fmt::format(
        "the adapter is in {}, for PEFT with transformers 4 or 5; {} --merge -o MERGED writes a "
        "checkpoint with it",
        out, convert);
  }
  const bool is_fused = its.layout == AdapterLayout::transformers5;
  return fmt::format(
      "the adapter is in {0}, for PEFT with transformers {1}; on transformers {2} a part of it "
      "would be lost or count wrongly: {3} --adapter-layout transformers{2} -o OUT writes it for "
      "that, --merge a checkpoint with it",
      out, is_fused ? 5 : 4, is_fused ? 4 : 5, convert);
}

std::string SftSetup::start_line(const SftData& data, std::int64_t done) const {
  JsonWriter trainable;
  const auto numbers = trainable_numbers(specs_);
  for (std::size_t kind = 0; kind < numbers.size(); ++kind) {
    trainable.field(kAdapterKindNames[kind], numbers[kind]);
  }
  return JsonWriter()
      .field("event", "start")
      .field("step", done)
      .field("total_steps", total_steps_)
      .field("samples", data.train.size())
      .field("held_out_samples", data.held_out.size())
      .field("tokens", data.train.tokens())
      .field("trained_tokens", data.train.trained_tokens())
      .raw_field("trainable", trainable.text())
      .field("ranks", runtime_.world().size())
      .field("recompute", recomputes())
      .field("digest", digest_.all)
      .text();
}

std::string SftSetup::text(const SftData& data) const {
  return fmt::format("{}\nnumbers to train {}; router frozen, balance loss reported only; {} of {}",
                     samples_text(data.train, data.train_report), trainable_text(specs_),
                     counted(total_steps_, "step"),
                     counted(runtime_.options().global_batch_size, "sample"));
}

}  // namespace moesaic
