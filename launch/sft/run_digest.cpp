#include "launch/sft/run_digest.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "comm/long_work.h"
#include "launch/job/adapter_layout.h"
#include "launch/job/agreement.h"
#include "launch/job/model_checksum.h"
#include "launch/options/option_table.h"
#include "launch/sft/sft_output.h"
#include "src/checkpoint/mapped_file.h"

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
     "chat-template", "lora", "lora-rank", "lora-alpha", "rslora", "lora-dropout", "lora-targets",
     "adapter-layout"});

/// Of kDeciding, those that do: with a constant rate a run may become longer.
std::vector<std::string_view> deciding(const Options& options) {
  std::vector<std::string_view> names(kDeciding.begin(), kDeciding.end());
  if (options.schedule == RateSchedule::constant) {
    std::erase(names, "epochs");
    std::erase(names, "max-steps");
  }
  return names;
}

/// Of the values that an adapter has.
std::string checksum_of_adapter(const std::string& directory, LongWork& work) {
  const MappedFile tensors((std::filesystem::path(directory) / kAdapterTensorsFile).string());
  Checksum sum;
  std::int64_t done = 0;
  reading(tensors, [&] {
    add_to_checksum(sum, tensors.bytes(), [&](std::int64_t bytes) {
      work.advance(done += bytes, std::ssize(tensors.bytes()));
    });
  });
  return checksum_text(sum.value());
}

/// Of all that decides the bytes of the result, and of nothing else.
RunDigest digest_of(const Options& options, const OpenModel& model, const SftData& data,
                    std::span<const AdapterSpec> specs, double dropout, LongWork& work) {
  RunDigest digest{.model = model_checksum(model.files.directory()),
                   .data = checksum_text(data.train.fingerprint())};
  std::string& text = digest.settings;
  text = digest.model + digest.data;
  for (const std::string_view name : deciding(options)) {
    text += fmt::format("{}={}\n", name, value_text(*find_option(name, Verb::sft), options));
  }
  if (dropout > 0) text += fmt::format("lora-dropout={}\n", dropout);
  const AdapterLayout layout =
      choose_adapter_layout(options, model.config, model.adapter ? &*model.adapter : nullptr);
  text += fmt::format("{}\n", kAdapterLayoutNames[static_cast<std::size_t>(layout)]);
  for (const AdapterSpec& spec : specs) {
    text += fmt::format("{} {} {}\n", spec.site.module, spec.rank, spec.scale);
  }
  if (!options.lora) return digest;
  digest.adapter.reset();
  if (model.adapter_directory == *options.lora) {
    digest.adapter = checksum_of_adapter(*options.lora, work);
  }
  return digest;
}

}  // namespace

std::string RunDigest::text() const {
  return checksum_text(checksum(settings + adapter.value_or("gone")));
}

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

std::string other_run(const Command& command, const TrainProgress& its, const RunDigest& own_run) {
  const std::vector<std::string_view> own = deciding(command.options);
  for (const std::span<const std::string_view> names :
       {std::span<const std::string_view>(own), std::span<const std::string_view>(kChoosing)}) {
    const std::string changed = changed_options(command, names).value_or("");
    if (!changed.empty()) return "was made with " + changed;
  }
  const Options& options = command.options;
  if (its.model != own_run.model) {
    return fmt::format("was made from another model than {} is now", options.model);
  }
  if (its.data != own_run.data) {
    return fmt::format("was made from other data than {} gives now", *options.data);
  }
  if (its.adapter != own_run.adapter) {
    return options.lora ? fmt::format("was made from another adapter than {} is now", *options.lora)
                        : "was made from an adapter (--lora)";
  }
  return "was made with other options, or another dropout or scale of the adapter";
}

}  // namespace moesaic
