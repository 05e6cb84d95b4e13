#include "launch/verbs/inspect_report.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/memory.h"

namespace moesaic {
namespace {

std::string tokenizer_kind(const ModelFiles& files) {
  const std::string path = files.path_of("tokenizer.json");
  if (!std::filesystem::exists(path)) return "none";
  const Json model = Json::read_file(path).at("model");
  return model.contains("type") ? model.at("type").as_string() : "unknown";
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

std::string names_json(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(json_quote(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 10;
  if (names.empty()) return "none";
  std::string text = fmt::format("{}", names.size());
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += "\n    " + names[i];
  if (names.size() > kShown) text += fmt::format("\n    and {} more", names.size() - kShown);
  return text;
}

std::string windows_text(const ModelConfig& config) {
  const auto windowed = std::count_if(config.sliding_window.begin(), config.sliding_window.end(),
                                      [](std::int64_t window) { return window > 0; });
  if (windowed == 0) return "";
  const std::int64_t widest =
      *std::max_element(config.sliding_window.begin(), config.sliding_window.end());
  return fmt::format(", {} of {} layers see {} tokens", windowed, config.num_layers, widest);
}

std::string layers_text(const ModelConfig& config) {
  const std::int64_t moe = config.num_moe_layers();
  std::string text = fmt::format("{}: {} MoE", config.num_layers, moe);
  if (moe < config.num_layers) {
    text +=
        fmt::format(", {} dense (width {})", config.num_layers - moe, config.dense_intermediate);
  }
  return text;
}

std::string experts_text(const ModelConfig& config) {
  std::string text = fmt::format("{} of width {}, {} a token", config.num_experts,
                                 config.moe_intermediate, config.experts_per_token);
  if (config.shared_intermediate > 0) {
    text += fmt::format(", shared one of width {}", config.shared_intermediate);
  }
  return text;
}

template <typename Line>
void print_inventory(const Inventory& inventory, const Line& line) {
  line("  experts", bytes_text(inventory.expert_bytes));
  line("  others", bytes_text(inventory.non_expert_bytes));
  line("missing", names_text(inventory.missing));
  line("unknown", names_text(inventory.unknown));
  if (!inventory.ignored.empty()) line("of no use", names_text(inventory.ignored));
}

}  // namespace

void print_text(const InspectReport& report) {
  const ModelConfig& config = report.config;
  const auto line = [](std::string_view label, const std::string& text) {
    fmt::print("{:<14}{}\n", label, text);
  };
  line("family", std::string(family_name(config.family)));
  line("layers", layers_text(config));
  line("hidden", fmt::format("{}", config.hidden_size));
  line("heads", fmt::format("{} of {}, {} for keys and values", config.num_heads, config.head_dim,
                            config.num_kv_heads));
  line("experts", experts_text(config));
  line("parameters",
       fmt::format("{} ({} for one token)", format_count(report.facts.total_parameters),
                   format_count(report.facts.active_parameters)));
  line("context",
       fmt::format("{} tokens, rope {} (theta {}){}", config.max_position_embeddings,
                   rope_type_name(config.rope.type), config.rope.theta, windows_text(config)));
  line("vocabulary", fmt::format("{}{}", config.vocab_size,
                                 config.tie_word_embeddings ? ", embedding is the head" : ""));
  line("tokenizer", tokenizer_kind(report.files));
  line("files", fmt::format("{}, {} of {}", report.files.num_files(),
                            format_bytes(report.files.total_bytes()),
                            report.files.packed() == nullptr ? "tensors" : "packed weights"));
  if (report.inventory) print_inventory(*report.inventory, line);
  if (!report.packing) return;
  line("packed", report.files.packed() == nullptr ? "when loaded, unless --expert-format says else"
                                                  : "by moesaic convert, to be used as they are");
  line("  experts", bytes_text(report.packing->experts));
  line("  others", bytes_text(report.packing->others));
}

void print_json(const InspectReport& report) {
  const ModelConfig& config = report.config;
  JsonWriter out;
  out.field("family", family_name(config.family))
      .field("layers", config.num_layers)
      .field("moe_layers", config.num_moe_layers())
      .field("hidden_size", config.hidden_size)
      .field("heads", config.num_heads)
      .field("kv_heads", config.num_kv_heads)
      .field("head_dim", config.head_dim)
      .field("experts", config.num_experts)
      .field("experts_per_token", config.experts_per_token)
      .field("expert_width", config.moe_intermediate)
      .field("dense_width", config.dense_intermediate)
      .field("shared_expert_width", config.shared_intermediate)
      .field("parameters", report.facts.total_parameters)
      .field("active_parameters", report.facts.active_parameters)
      .field("context", config.max_position_embeddings)
      .field("rope", rope_type_name(config.rope.type))
      .field("rope_theta", config.rope.theta)
      .field("vocab_size", config.vocab_size)
      .field("tied_embeddings", config.tie_word_embeddings)
      .field("tokenizer", tokenizer_kind(report.files))
      .field("files", report.files.num_files())
      .field("tensor_bytes", report.files.total_bytes())
      .field("converted", report.files.packed() != nullptr);
  if (report.inventory) {
    out.raw_field("expert_bytes", bytes_json(report.inventory->expert_bytes))
        .raw_field("non_expert_bytes", bytes_json(report.inventory->non_expert_bytes))
        .raw_field("missing", names_json(report.inventory->missing))
        .raw_field("unknown", names_json(report.inventory->unknown))
        .raw_field("ignored", names_json(report.inventory->ignored));
  }
  if (report.packing) {
    out.raw_field("packed_expert_bytes", bytes_json(report.packing->experts))
        .raw_field("packed_other_bytes", bytes_json(report.packing->others));
  }
  fmt::print("{}\n", out.text());
}

}  // namespace moesaic
