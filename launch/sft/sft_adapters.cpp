#include "launch/sft/sft_adapters.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "launch/job/adapter_layout.h"
#include "launch/job/agreement.h"
#include "launch/options/option_table.h"
#include "src/lora/adapter_targets.h"
#include "src/lora/written_modules.h"
#include "src/model/model_adapters.h"

namespace moesaic {
namespace {

std::vector<AdapterSpec> new_adapters(const Options& options, std::span<const AdapterSite> sites) {
  require(options.lora_alpha > 0, ErrorKind::usage,
          "--lora-alpha 0: adapters would add nothing, whatever is trained");
  std::vector<AdapterSpec> specs;
  for (AdapterSite& site : choose_sites(sites, options.lora_targets)) {
    specs.push_back(
        {.site = std::move(site),
         .rank = options.lora_rank,
         .alpha = options.lora_alpha,
         .scale = adapter_scale(options.lora_alpha, options.lora_rank, options.rslora)});
  }
  put_common_first(specs, &AdapterSpec::site);
  try {  // Throws for what no file could hold, of either layout.
    (void)written_modules(specs, AdapterLayout::transformers4, options.rslora);
  } catch (const Error& error) {
    fail(error.kind(), "--lora-targets \"{}\": {}", options.lora_targets, error.what());
  }
  return specs;
}

std::vector<std::string> modules_of(std::span<const AdapterSpec> specs) {
  std::vector<std::string> modules;
  for (const AdapterSpec& spec : specs) modules.push_back(spec.site.module);
  std::ranges::sort(modules);
  return modules;
}

/// A run that goes on keeps what its adapter is: an option that was given may only say the same.
void require_agreement(const Command& command, const AdapterFiles& lora,
                       std::span<const AdapterSite> sites) {
  const Options& options = command.options;
  const auto check = [&](std::string_view option, const auto& agrees) {
    require(source_of(command, option) == OptionSource::preset || agrees(), ErrorKind::usage,
            "--{} {} is not what the adapter of --lora has, with which the run goes on; leave it "
            "out",
            option, value_text(*find_option(option, Verb::sft), options));
  };
  const auto all = [&](const auto& agrees) {
    return [&lora, agrees] { return std::ranges::all_of(lora.specs(), agrees); };
  };
  check("lora-rank", all([&](const AdapterSpec& spec) { return spec.rank == options.lora_rank; }));
  check("lora-alpha",
        all([&](const AdapterSpec& spec) { return spec.alpha == options.lora_alpha; }));
  check("rslora", [&] { return lora.description().rank_stabilised == options.rslora; });
  check("lora-targets",
        [&] { return modules_of(new_adapters(options, sites)) == modules_of(lora.specs()); });
}

/// An adapter of several ranks or alphas has no place in a layout that fuses experts.
void require_fits(const AdapterFiles& lora, AdapterLayout layout) {
  try {
    (void)written_modules(lora.specs(), layout, lora.description().rank_stabilised);
  } catch (const Error& error) {
    fail(error.kind(), "--adapter-layout {}: {}",
         kAdapterLayoutNames[static_cast<std::size_t>(layout)], error.what());
  }
}

/// Where heads multiply rows of their own, no product reads what the module would.
void require_dropout_of(std::span<const AdapterSpec> adapters, double share,
                        std::string_view field) {
  const auto found =
      std::ranges::find_if(adapters, [](const AdapterSpec& spec) { return spec.site.heads > 0; });
  if (share == 0 || found == adapters.end()) return;
  fail(ErrorKind::usage,
       "{} {}: the adapter of {} is trained without dropout alone, since its input is never "
       "multiplied; --lora-dropout 0, or --lora-targets without it",
       field, share, found->site.module);
}

}  // namespace

std::vector<AdapterSite> find_adapter_sites(const Runtime& runtime, const OpenModel& model) {
  std::vector<AdapterSite> sites;
  agree(runtime.world(), [&] { sites = adapter_sites(model.files.names(model.config)); });
  return sites;
}

double choose_dropout(const Command& command, const AdapterFiles* lora,
                      std::span<const AdapterSpec> adapters) {
  const bool is_given = source_of(command, "lora-dropout") != OptionSource::preset;
  if (lora == nullptr || is_given) {
    require_dropout_of(adapters, command.options.lora_dropout, "--lora-dropout");
    return command.options.lora_dropout;
  }
  const std::string field =
      fmt::format("{}/{}: lora_dropout", *command.options.lora, kAdapterConfigFile);
  const double share = lora->description().dropout;
  require(share >= 0 && share < 1, ErrorKind::file,
          "{} is {}, expected 0 or more and below 1; --lora-dropout 0 trains without", field,
          share);
  require_dropout_of(adapters, share, field);
  return share;
}

double choose_dropout(const Runtime& runtime, const AdapterFiles* lora,
                      std::span<const AdapterSpec> adapters) {
  double share = 0;
  agree(runtime.world(), [&] { share = choose_dropout(runtime.command(), lora, adapters); });
  return share;
}

std::vector<AdapterSpec> choose_adapters(const Command& command, const OpenModel& model,
                                         std::span<const AdapterSite> sites) {
  const AdapterFiles* const lora = model.adapter ? &*model.adapter : nullptr;
  const AdapterLayout layout = choose_adapter_layout(command.options, model.config, lora);
  if (lora == nullptr) return new_adapters(command.options, sites);
  require_agreement(command, *lora, sites);
  if (layout != lora->description().layout) require_fits(*lora, layout);
  return lora->specs();
}

std::vector<AdapterSpec> choose_adapters(const Runtime& runtime, const OpenModel& model,
                                         std::span<const AdapterSite> sites) {
  std::vector<AdapterSpec> specs;
  agree(runtime.world(), [&] { specs = choose_adapters(runtime.command(), model, sites); });
  return specs;
}

}  // namespace moesaic
