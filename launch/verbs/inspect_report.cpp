#include "launch/verbs/inspect_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "launch/job/adapter_text.h"

namespace moesaic {
namespace {

std::string tokenizer_text(const TokenizerSummary& tokenizer) {
  const std::int64_t beyond = tokenizer.ids_beyond;
  if (beyond == 0) return tokenizer.kind;
  return fmt::format("{}; {} of its tokens {} beyond the vocabulary: texts with {} are refused",
                     tokenizer.kind, beyond, beyond == 1 ? "is" : "are",
                     beyond == 1 ? "it" : "them");
}

std::string_view key_text(DType dtype) {
  return dtype_name(dtype);
}
std::string_view key_text(const std::string& layout) {
  return layout;
}

template <typename Key>
std::string bytes_text(const std::map<Key, std::int64_t>& bytes) {
  std::vector<std::string> parts;
  for (const auto& [key, count] : bytes) {
    parts.push_back(fmt::format("{} {}", format_bytes(count), key_text(key)));
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

template <typename Key>
std::string bytes_json(const std::map<Key, std::int64_t>& bytes) {
  JsonWriter out;
  for (const auto& [key, count] : bytes) out.field(key_text(key), count);
  return out.text();
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  if (names.empty()) return "none";
  std::string text = fmt::format("{}", names.size());
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += "\n    " + names[i];
  if (names.size() > kShown) text += fmt::format("\n    and {} more", names.size() - kShown);
  return text;
}

/// The mixers, each kind once: kinds that differ in their window alone are one.
std::vector<const MixerKind*> mixers_of(const ModelConfig& config) {
  std::vector<const MixerKind*> kinds;
  for (const LayerConfig& layer : config.layers) {
    const bool is_known = std::ranges::any_of(kinds, [&](const MixerKind* kind) {
      return kind->text().label == layer.mixer->text().label;
    });
    if (!is_known) kinds.push_back(layer.mixer.get());
  }
  return kinds;
}

std::string context_text(const ModelConfig& config) {
  std::string text = fmt::format("{} tokens", config.max_position_embeddings);
  for (const MixerKind* kind : mixers_of(config)) {
    const std::string positions = kind->text().positions;
    if (!positions.empty()) text += ", " + positions;
  }
  std::int64_t widest = 0;
  std::int64_t windowed = 0;
  for (const LayerConfig& layer : config.layers) {
    widest = std::max(widest, layer.mixer->window());
    windowed += layer.mixer->window() > 0 ? 1 : 0;
  }
  if (windowed == 0) return text;
  return text +
         fmt::format(", {} of {} layers see {} tokens", windowed, config.num_layers(), widest);
}

/// Of a layer with experts and of one without; zeros if there is none.
struct LayerSizes {
  FeedForwardSizes moe;
  FeedForwardSizes plain;
};

LayerSizes layer_sizes(const ModelConfig& config) {
  LayerSizes found;
  for (const LayerConfig& layer : config.layers) {
    const FeedForwardSizes sizes = layer.feed_forward->sizes();
    (sizes.experts > 0 ? found.moe : found.plain) = sizes;
  }
  return found;
}

std::string layers_text(const ModelConfig& config) {
  const std::int64_t moe = config.num_moe_layers();
  std::string text = fmt::format("{}: {} MoE", config.num_layers(), moe);
  if (moe < config.num_layers()) {
    text += fmt::format(", {} dense (width {})", config.num_layers() - moe,
                        layer_sizes(config).plain.common_width);
  }
  return text;
}

std::string experts_text(const FeedForwardSizes& sizes) {
  std::string text = fmt::format("{} of width {}, {} a token", sizes.experts, sizes.expert_width,
                                 sizes.experts_per_token);
  if (sizes.common_width > 0) text += fmt::format(", shared one of width {}", sizes.common_width);
  return text;
}

/// Tensors of shards that the checkpoint's index does not name.
std::vector<std::string> unindexed_names(const InspectReport& report) {
  const Checkpoint* const checkpoint = report.files.checkpoint();
  return checkpoint == nullptr ? std::vector<std::string>() : checkpoint->unindexed_names();
}

template <typename Line>
void print_inventory(const Inventory& inventory, const Line& line) {
  line("  experts", bytes_text(inventory.expert_bytes));
  line("  others", bytes_text(inventory.non_expert_bytes));
  line("missing", names_text(inventory.missing));
  line("unknown", names_text(inventory.unknown));
  if (!inventory.ignored.empty()) line("of no use", names_text(inventory.ignored));
}

/// What --gpu-experts takes of all GPUs together: packed experts are there as they are on the host.
std::int64_t gpu_expert_bytes(const PackingSummary& packing) {
  std::int64_t bytes = 0;
  for (const auto& [layout, count] : packing.experts) bytes += count;
  return bytes;
}

std::string on_gpus_text(const InspectReport& report) {
  const PackingSummary& packing = *report.packing;
  if (!packing.missing_on_gpus.empty()) return "no experts: " + packing.missing_on_gpus;
  const std::int64_t all = gpu_expert_bytes(packing);
  return fmt::format("{} with --gpu-experts all, {} for each one a layer", format_bytes(all),
                     format_bytes(all / report.config.num_experts));
}

}  // namespace

void print_text(const InspectReport& report) {
  const ModelConfig& config = report.config;
  const auto line = [](std::string_view label, const std::string& text) {
    fmt::print("{:<14}{}\n", label, text);
  };
  line("family", config.family);
  line("layers", layers_text(config));
  line("hidden", fmt::format("{}", config.hidden_size));
  for (const MixerKind* kind : mixers_of(config)) line(kind->text().label, kind->text().sizes);
  line("experts", experts_text(layer_sizes(config).moe));
  line("parameters",
       fmt::format("{} ({} for one token)", format_count(report.facts.total_parameters),
                   format_count(report.facts.active_parameters)));
  line("context", context_text(config));
  line("vocabulary", fmt::format("{}{}", config.vocab_size,
                                 config.tie_word_embeddings ? ", embedding is the head" : ""));
  if (report.tokenizer) line("tokenizer", tokenizer_text(*report.tokenizer));
  line("files", fmt::format("{}, {} of {}", report.files.num_files(),
                            format_bytes(report.files.total_bytes()),
                            report.files.packed() == nullptr ? "tensors" : "packed weights"));
  if (report.inventory) print_inventory(*report.inventory, line);
  if (const auto left = unindexed_names(report); !left.empty()) {
    line("not in index", names_text(left));
  }
  if (report.adapter) {
    line("adapter", adapter_text(report.adapter->specs(), report.adapter->description().layout));
  }
  if (!report.packing) return;
  line("packed", report.files.packed() == nullptr ? "when loaded, unless --expert-format says else"
                                                  : "by moesaic convert, to be used as they are");
  line("  experts", bytes_text(report.packing->experts));
  line("  others", bytes_text(report.packing->others));
  line("  on GPUs", on_gpus_text(report));
}

void print_json(const InspectReport& report) {
  const ModelConfig& config = report.config;
  const LayerSizes sizes = layer_sizes(config);
  JsonWriter out;
  out.field("family", config.family)
      .field("layers", config.num_layers())
      .field("moe_layers", config.num_moe_layers())
      .field("hidden_size", config.hidden_size);
  for (const MixerKind* kind : mixers_of(config)) kind->write_fields(out);
  out.field("experts", config.num_experts)
      .field("experts_per_token", config.experts_per_token)
      .field("expert_width", sizes.moe.expert_width)
      .field("dense_width", sizes.plain.common_width)
      .field("shared_expert_width", sizes.moe.common_width)
      .field("parameters", report.facts.total_parameters)
      .field("active_parameters", report.facts.active_parameters)
      .field("context", config.max_position_embeddings)
      .field("vocab_size", config.vocab_size)
      .field("tied_embeddings", config.tie_word_embeddings);
  if (report.tokenizer) {
    out.field("tokenizer", report.tokenizer->kind)
        .field("tokens_beyond_vocabulary", report.tokenizer->ids_beyond);
  }
  out.field("files", report.files.num_files())
      .field("tensor_bytes", report.files.total_bytes())
      .field("converted", report.files.packed() != nullptr);
  if (report.inventory) {
    out.raw_field("expert_bytes", bytes_json(report.inventory->expert_bytes))
        .raw_field("non_expert_bytes", bytes_json(report.inventory->non_expert_bytes))
        .raw_field("missing", json_strings(report.inventory->missing))
        .raw_field("unknown", json_strings(report.inventory->unknown))
        .raw_field("ignored", json_strings(report.inventory->ignored))
        .raw_field("unindexed", json_strings(unindexed_names(report)));
  }
  if (report.adapter) out.raw_field("adapter", adapter_json(*report.adapter));
  if (report.packing) {
    out.raw_field("packed_expert_bytes", bytes_json(report.packing->experts))
        .raw_field("packed_other_bytes", bytes_json(report.packing->others));
    const bool may_be_there = report.packing->missing_on_gpus.empty();
    out.field("gpu_expert_bytes", may_be_there ? gpu_expert_bytes(*report.packing) : 0);
  }
  fmt::print("{}\n", out.text());
}

}  // namespace moesaic
