#include "launch/sft/sft_texts.h"

#include <fmt/core.h>

#include "base/counted.h"
#include "base/json.h"
#include "base/small_file.h"
#include "launch/job/adapter_text.h"
#include "launch/options/shell_word.h"
#include "src/lora/peft_config.h"
#include "src/lora/written_modules.h"

namespace moesaic {
namespace {

/// "3 min 20 s"
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

/// Of transformers, that compute of the model what it was trained with.
std::string_view versions_text(const ModelConfig& config) {
  if (config.alike_in_transformers4) return "4 or 5";
  return config.in_transformers4 ? "5, as 4 may read this model otherwise"
                                 : "5, the first that has this family";
}

}  // namespace

std::string start_line(const SftSetup& setup, const SftData& data, const RunStart& start) {
  JsonWriter trainable;
  const auto numbers = trainable_numbers(setup.specs());
  for (std::size_t kind = 0; kind < numbers.size(); ++kind) {
    trainable.field(kAdapterKindNames[kind], numbers[kind]);
  }
  return JsonWriter()
      .field("event", "start")
      .field("step", start.done)
      .field("total_steps", setup.total_steps())
      .field("samples", data.train.size())
      .field("held_out_samples", data.held_out.size())
      .field("tokens", data.train.tokens())
      .field("trained_tokens", data.train.trained_tokens())
      .raw_field("trainable", trainable.text())
      .field("ranks", start.ranks)
      .field("recompute", setup.recomputes())
      .field("digest", start.digest)
      .text();
}

std::string start_text(const Options& options, const SftSetup& setup, const SftData& data) {
  return fmt::format("{}\nnumbers to train {}; router frozen, balance loss reported only; {} of {}",
                     samples_text(data.train, data.train_report), trainable_text(setup.specs()),
                     counted(setup.total_steps(), "step"),
                     counted(options.global_batch_size, "sample"));
}

std::string unused_training(const std::string& directory) {
  const Json config = Json::read_file(directory + "/config.json", kMaxConfigBytes);
  std::string text;
  for (const char* const name :
       {"attention_dropout", "router_jitter_noise", "output_router_logits"}) {
    const auto member = config.find(name);
    const bool is_set = member && ((member->is_bool() && member->as_bool()) ||
                                   (member->is_number() && member->as_double() != 0));
    if (!is_set) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name,
                        member->is_bool() ? "" : fmt::format(" {}", member->as_double()));
  }
  return text;
}

std::string step_text(const StepMetrics& metrics, std::int64_t total_steps, double seconds_left) {
  return fmt::format(
      "step {}/{}  loss {:.4f}  gradient {:.4g}  rate {:.3g}  {:.4g} tokens/s  {} left",
      metrics.step, total_steps, metrics.loss, metrics.grad_norm, metrics.learning_rate,
      static_cast<double>(metrics.tokens) / metrics.seconds, duration_text(seconds_left));
}

std::string end_text(const Options& options, const SftSetup& setup) {
  const std::string& out = options.output_dir;
  const AdapterDescription its = setup.description();
  const std::string model =  // what it may be merged into
      setup.is_converted() ? "CHECKPOINT" : shell_word(options.model);
  const std::string convert =
      fmt::format("moesaic convert -m {} --lora {}", model, shell_word(out));
  const ModelConfig& model_config = setup.config();
  const bool is_fused = its.layout == AdapterLayout::transformers5;
  const bool on_both = loads_on_both(its, model_config.peft5_takes_experts, setup.specs());
  if (on_both || (is_fused && !model_config.alike_in_transformers4)) {
    return fmt::format(
        "the adapter is in {}, for PEFT with transformers {}; {} --merge -o MERGED writes a "
        "checkpoint with it",
        out, versions_text(model_config), convert);
  }
  const AdapterLayout other =
      is_fused ? AdapterLayout::transformers4 : AdapterLayout::transformers5;
  const std::string made =  // of it
      can_be_written(setup.specs(), other, its.rank_stabilised)
          ? fmt::format(
                "{} --adapter-layout {} -o OUT writes it for that, --merge a checkpoint "
                "with it",
                convert, kAdapterLayoutNames[static_cast<std::size_t>(other)])
          : fmt::format("{} --merge -o MERGED writes a checkpoint with it", convert);
  return fmt::format(
      "the adapter is in {}, for PEFT with transformers {}{}; on transformers {} a part of it "
      "would be refused, lost or count wrongly: {}",
      out, is_fused ? 5 : 4,
      is_fused || model_config.alike_in_transformers4 ? ""
                                                      : ", which may read this model otherwise",
      is_fused ? 4 : 5, made);
}

}  // namespace moesaic
