#include "launch/verbs/run_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/json.h"
#include "launch/job/model_checksum.h"
#include "launch/options/option_table.h"

namespace moesaic {
namespace {

/// Of these groups, options decide which texts come out, but for some.
constexpr std::array<std::string_view, 5> kGroups = {"Model", "Text", "Generation", "Exchange",
                                                     "GPUs"};
constexpr std::array<std::string_view, 8> kOtherwise = {
    "mmap",      "verify",       "strict",    "parallel", "no-display-prompt",
    "placement", "half-batches", "check-rows"};

bool decides_texts(Verb verb, const OptionRow& row) {
  return takes(verb, row) && !row.may_differ && !row.flag_only &&
         std::ranges::find(kGroups, row.group) != kGroups.end() &&
         std::ranges::find(kOtherwise, row.name) == kOtherwise.end();
}

/// Of the ranks that share the experts: "0,0,1,1".
std::string expert_nodes(const Runtime& runtime) {
  const auto sharers = static_cast<std::size_t>(runtime.grid().experts().size());
  std::vector<int> nodes;
  for (const RankInfo& rank : runtime.ranks().first(sharers)) nodes.push_back(rank.node);
  return fmt::format("{}", fmt::join(nodes, ","));
}

/// --seed stays as it was given: -1 draws another one each time.
Options with_sampling(Options options, const SamplingOptions& sampling) {
  options.temp = sampling.temperature;
  options.top_k = sampling.top_k;
  options.top_p = sampling.top_p;
  options.min_p = sampling.min_p;
  options.repeat_penalty = sampling.repetition_penalty;
  return options;
}

JsonWriter deciding_options(const Runtime& runtime, const Options& options) {
  JsonWriter out;
  for (const OptionRow& row : option_table()) {
    if (!decides_texts(*runtime.command().verb, row)) continue;
    std::string value = value_text(row, options);
    if (row.name == "combine" && options.combine == Combine::fast) {
      value += fmt::format(" on nodes {}, placed {}", expert_nodes(runtime), options.placement);
    }
    out.field(row.name, value);
  }
  return out;
}

std::string checksum_of_model(const Runtime& runtime, const std::string& model_directory) {
  const std::optional<std::string>& lora = runtime.options().lora;
  return model_checksum(model_directory) + (lora ? "+" + model_checksum(*lora) : "");
}

template <typename T>
void add_value(Checksum& sum, const T& value) {
  sum.add(std::as_bytes(std::span(&value, 1)));
}

template <typename T>
void add_values(Checksum& sum, const std::vector<T>& values) {
  add_value(sum, values.size());
  sum.add(std::as_bytes(std::span(values)));
}

/// Of prompts with their tokens.
std::string inputs_checksum(const TokenPrompts& input) {
  Checksum sum;
  for (std::size_t i = 0; i < input.prompts.size(); ++i) {
    add_value(sum, input.prompts[i].checksum);
    add_values(sum, input.tokens[i]);
  }
  return checksum_text(sum.value());
}

}  // namespace

std::string inputs_checksum(const ScoreInput& input) {
  Checksum sum;
  for (std::size_t i = 0; i < input.documents.size(); ++i) {
    add_values(sum, input.documents[i].tokens);
    add_value(sum, input.labels[i].is_pair);
    add_value(sum, input.documents[i].windows.front().first);  // where a continuation begins
    for (const bool counts : input.documents[i].counted) add_value(sum, counts);
  }
  return checksum_text(sum.value());
}

RunIdentity run_identity(const Runtime& runtime, std::string inputs,
                         const std::string& model_directory) {
  return {.inputs = std::move(inputs),
          .model = checksum_of_model(runtime, model_directory),
          .options = deciding_options(runtime, runtime.options()).text()};
}

RunIdentity run_identity(const Runtime& runtime, const TokenPrompts& input,
                         const std::string& model_directory, const SamplingOptions& sampling) {
  RunIdentity identity = run_identity(runtime, inputs_checksum(input), model_directory);
  identity.options = deciding_options(runtime, with_sampling(runtime.options(), sampling)).text();
  return identity;
}

RunIdentity run_identity_of_arriving(const Runtime& runtime, const TokenPrompts& input,
                                     const std::string& model_directory,
                                     const SamplingOptions& sampling) {
  JsonWriter options = deciding_options(runtime, with_sampling(runtime.options(), sampling));
  if (input.chat_template) {
    options.field("chat-template", checksum_text(input.chat_checksum))
        .field("system-prompt", runtime.options().system_prompt.value_or(""));
  }
  return {.inputs = input_name("-"),
          .model = checksum_of_model(runtime, model_directory),
          .options = options.text()};
}

}  // namespace moesaic
