#include <array>

#include "launch/options/option_table.h"
#include "launch/options/verb_sets.h"
#include "src/lora/adapter_targets.h"

namespace moesaic {
namespace {

using O = Options;

constexpr std::string_view kData = "Data";
constexpr std::string_view kAdapter = "Adapter";
constexpr std::string_view kTraining = "Training";
constexpr std::string_view kBenchmark = "Benchmark";

constexpr double kMany = 1e12;

/// A file that rank 0 reads or writes.
constexpr OptionRow file_row(std::string_view name, std::optional<std::string> Options::*field,
                             std::string_view group, std::string_view help) {
  return {.name = name,
          .value = "FILE",
          .field = field,
          .group = group,
          .verbs = verbs::kSft,
          .help = help,
          .may_differ = true};
}

/// Options::data_format.
constexpr ChoiceField a_sample_format() {
  return {
      .names = kWantedSampleFormatNames,
      .set =
          [](Options& options, std::string_view name) {
            options.data_format.reset();
            for (const auto& choice : kChoices<SampleFormat>) {
              if (choice.name == name) options.data_format = choice.value;
            }
            return options.data_format.has_value() || name == "auto";
          },
      .get =
          [](const Options& options) {
            return std::string(options.data_format ? choice_name(*options.data_format) : "auto");
          }};
}

constexpr std::array kRows = {
    file_row("data", &O::data, kData,
             "what to train on: JSONL, or a JSON list; - is the standard input"),
    OptionRow{"data-format", '\0', "NAME", a_sample_format(), kData, verbs::kSft,
              "how a line of it is written; auto: as its members tell"},
    file_row("eval-data", &O::eval_data, kData, "held-out data of the same form"),
    OptionRow{
        "eval-split", '\0', "X", &O::eval_split, kData, verbs::kSft,
        "samples of --data to hold out, in OUTDIR/held_out.jsonl: a share below 1, or a number", 0,
        kMany},
    OptionRow{"train-on", '\0', "TURNS", one_of<&O::train_on>(), kData, verbs::kSft,
              "which turns of the assistant are trained"},
    OptionRow{"too-long", '\0', "WAY", one_of<&O::too_long>(), kData, verbs::kSft,
              "what happens to samples longer than --ctx-size"},
    OptionRow{"no-shuffle", '\0', "", &O::no_shuffle, kData, verbs::kSft,
              "train in the order of the file"},
    OptionRow{"show-sample", '\0', "N", &O::show_sample, kData, verbs::kSft,
              "print the first N samples, trained parts between >> and <<, and train nothing", 0,
              kMany},
    file_row("samples-out", &O::samples_out, kData,
             "write all samples of --data as lines of input_ids and labels, and train "
             "nothing; a file, or - for the standard output"),

    OptionRow{"output", 'o', "OUTDIR", &O::output_dir, kAdapter, verbs::kSft,
              "directory of the adapter, its checkpoints and metrics"},
    OptionRow{"overwrite", '\0', "", &O::overwrite, kAdapter, verbs::kSft,
              "replace OUTDIR if it is there and was made by moesaic sft"},
    OptionRow{"lora-rank", '\0', "R", &O::lora_rank, kAdapter, verbs::kTraining | verbs::kPlan,
              "of the adapters' factors", 1, 1024},
    OptionRow{"lora-alpha", '\0', "A", &O::lora_alpha, kAdapter, verbs::kTraining,
              "adapters count A / R; A / sqrt(R) with --rslora", 0, 1e6},
    OptionRow{"rslora", '\0', "", &O::rslora, kAdapter, verbs::kTraining, "rank-stabilised scale"},
    OptionRow{"lora-dropout", '\0', "P", &O::lora_dropout, kAdapter,
              verbs::kTraining | verbs::kPlan,
              "share of an adapter's inputs that a step of training leaves out", 0, 0.99},
    OptionRow{.name = "lora-targets",
              .value = "LIST",
              .field = &O::lora_targets,
              .group = kAdapter,
              .verbs = verbs::kTraining | verbs::kPlan,
              .help = "what gets adapters: kinds, with commas (attention, delta nets too; experts, "
                      "shared, dense), or a regular expression on the names of modules",
              .one_spelling = canonical_targets},
    OptionRow{
        "adapter-layout", '\0', "NAME", one_of<&O::adapter_layout>(), kAdapter,
        verbs::kSft | verbs::kPlan,
        "names of modules in the adapter's files: those that PEFT takes with this version of "
        "transformers; auto: as --lora has them, else transformers4, or transformers5 where 4 "
        "lacks the model's family or may read the model otherwise"},

    OptionRow{"lr", '\0', "X", &O::lr, kTraining, verbs::kSft, "highest learning rate of AdamW", 0,
              1e3},
    OptionRow{"schedule", '\0', "NAME", one_of<&O::schedule>(), kTraining, verbs::kSft,
              "how the learning rate goes on after the warm-up"},
    OptionRow{"warmup-steps", '\0', "N", &O::warmup_steps, kTraining, verbs::kSft,
              "steps in which the learning rate rises", 0, kMany},
    OptionRow{"beta1", '\0', "X", &O::beta1, kTraining, verbs::kSft, "of AdamW", 0, 0.999999},
    OptionRow{"beta2", '\0', "X", &O::beta2, kTraining, verbs::kSft, "of AdamW", 0, 0.9999999},
    OptionRow{"adam-eps", '\0', "X", &O::adam_eps, kTraining, verbs::kSft, "of AdamW", 0, 1},
    OptionRow{"weight-decay", '\0', "X", &O::weight_decay, kTraining, verbs::kSft, "of AdamW", 0,
              1e3},
    OptionRow{"clip", '\0', "X", &O::clip, kTraining, verbs::kSft,
              "longest gradient, over all adapters of all ranks; 0: no limit", 0, 1e12},
    OptionRow{"global-batch-size", '\0', "N", &O::global_batch_size, kTraining,
              verbs::kSft | verbs::kPlan, "samples of a step, over all ranks", 1, 1e6},
    OptionRow{"seed", 's', "N", &O::seed, kTraining, verbs::kSft,
              "of new adapters, the order of samples and dropout", 0, 9e18},
    OptionRow{"epochs", '\0', "X", &O::epochs, kTraining, verbs::kSft, "passes over the data", 0,
              1e6},
    OptionRow{"max-steps", '\0', "N", &O::max_steps, kTraining, verbs::kSft,
              "end after N steps; 0: after --epochs", 0, kMany},
    OptionRow{"recompute", '\0', "WHEN", one_of<&O::recompute>(), kTraining,
              verbs::kTraining | verbs::kPlan,
              "compute layers again for the backward pass instead of keeping what they computed; "
              "auto: if the memory is too small"},
    OptionRow{"eval-every", '\0', "N", &O::eval_every, kTraining, verbs::kSft,
              "steps between losses of the held-out data; 0: before the first and after the last",
              0, kMany},
    OptionRow{"save-every", '\0', "N", &O::save_every, kTraining, verbs::kSft | verbs::kPlan,
              "steps between checkpoints, each with its adapter; 0: at the end alone", 0, kMany},
    OptionRow{"keep", '\0', "N", &O::keep, kTraining, verbs::kSft | verbs::kPlan,
              "checkpoints that stay, besides the one of the lowest held-out loss", 1, 1e6},
    OptionRow{"resume", '\0', "", &O::resume, kTraining, verbs::kSft,
              "go on from the last checkpoint in OUTDIR, if there is one"},
    OptionRow{"on-nonfinite", '\0', "WHAT", one_of<&O::on_nonfinite>(), kTraining, verbs::kSft,
              "when a loss or a gradient is no number: stop, or skip the step"},
    file_row("grad-out", &O::grad_out, kTraining,
             "write the gradients of the first step, before clipping, under the adapter's keys"),

    OptionRow{"step-tokens", '\0', "N", &O::step_tokens, kBenchmark, verbs::kBenchSft,
              "tokens of a step, over all ranks", 2, kMany},
    OptionRow{"sample-tokens", '\0', "N", &O::sample_tokens, kBenchmark, verbs::kBenchSft,
              "tokens of a sample; the last one of a step may be shorter", 2, kMany},
};

}  // namespace

std::span<const OptionRow> sft_rows() noexcept {
  return kRows;
}

}  // namespace moesaic
