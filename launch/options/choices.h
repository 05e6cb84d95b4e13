#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "launch/options/options.h"
#include "src/model/weight_layout.h"

namespace moesaic {

template <typename Enum>
struct NamedValue {
  std::string_view name;
  Enum value;
};

/// All values of an option's type by the names that users write, in the order of --help.
template <typename Enum>
inline constexpr std::array<NamedValue<Enum>, 0> kChoices{};

template <>
inline constexpr auto kChoices<Precision> =
    std::to_array<NamedValue<Precision>>({{"bf16", Precision::bf16}, {"fp32", Precision::f32}});
template <>
inline constexpr auto kChoices<Nvfp4Activations> = std::to_array<NamedValue<Nvfp4Activations>>(
    {{"bf16", Nvfp4Activations::bf16}, {"nvfp4", Nvfp4Activations::nvfp4}});
template <>
inline constexpr auto kChoices<ActivationScales> = std::to_array<NamedValue<ActivationScales>>(
    {{"runtime", ActivationScales::runtime}, {"checkpoint", ActivationScales::checkpoint}});
template <>
inline constexpr auto kChoices<Int4Activations> = std::to_array<NamedValue<Int4Activations>>(
    {{"bf16", Int4Activations::bf16}, {"int8", Int4Activations::int8}});
template <>
inline constexpr auto kChoices<WireForm> = std::to_array<NamedValue<WireForm>>(
    {{"exact", WireForm::exact}, {"bf16", WireForm::bf16}, {"int8", WireForm::int8}});
template <>
inline constexpr auto kChoices<Combine> =
    std::to_array<NamedValue<Combine>>({{"ordered", Combine::ordered}, {"fast", Combine::fast}});
template <>
inline constexpr auto kChoices<HalfBatches> = std::to_array<NamedValue<HalfBatches>>(
    {{"auto", HalfBatches::automatic}, {"on", HalfBatches::on}, {"off", HalfBatches::off}});
template <>
inline constexpr auto kChoices<Numerics> = std::to_array<NamedValue<Numerics>>(
    {{"native", Numerics::native}, {"portable", Numerics::portable}});
template <>
inline constexpr auto kChoices<AdapterLayoutChoice> =
    std::to_array<NamedValue<AdapterLayoutChoice>>(
        {{"auto", AdapterLayoutChoice::automatic},
         {"transformers4", AdapterLayoutChoice::transformers4},
         {"transformers5", AdapterLayoutChoice::transformers5}});
template <>
inline constexpr auto kChoices<Transport> =
    std::to_array<NamedValue<Transport>>({{"auto", Transport::automatic},
                                          {"mpi", Transport::mpi},
                                          {"shm", Transport::shm},
                                          {"nccl", Transport::nccl}});
template <>
inline constexpr auto kChoices<Processor> =
    std::to_array<NamedValue<Processor>>({{"cpu", Processor::cpu}, {"gpu", Processor::gpu}});
template <>
inline constexpr auto kChoices<GpuGraph> =
    std::to_array<NamedValue<GpuGraph>>({{"off", GpuGraph::off}, {"on", GpuGraph::on}});
template <>
inline constexpr auto kChoices<GpuKernel> = std::to_array<NamedValue<GpuKernel>>(
    {{"mma", GpuKernel::mma}, {"cutlass", GpuKernel::cutlass}});
template <>
inline constexpr auto kChoices<Pinning> =
    std::to_array<NamedValue<Pinning>>({{"auto", Pinning::automatic}, {"off", Pinning::off}});
template <>
inline constexpr auto kChoices<Colour> = std::to_array<NamedValue<Colour>>(
    {{"auto", Colour::automatic}, {"on", Colour::on}, {"off", Colour::off}});
template <>
inline constexpr auto kChoices<RoutingChoice> =
    std::to_array<NamedValue<RoutingChoice>>({{"both", RoutingChoice::both},
                                              {"even", RoutingChoice::even},
                                              {"skewed", RoutingChoice::skewed},
                                              {"hot_rank", RoutingChoice::hot_rank}});
template <>
inline constexpr auto kChoices<ProductOp> =
    std::to_array<NamedValue<ProductOp>>({{"forward", ProductOp::forward},
                                          {"transposed", ProductOp::transposed},
                                          {"outer", ProductOp::outer},
                                          {"attention", ProductOp::attention},
                                          {"attention-backward", ProductOp::attention_backward}});
template <>
inline constexpr auto kChoices<Rival> =
    std::to_array<NamedValue<Rival>>({{"none", Rival::none}, {"onednn", Rival::onednn}});
template <>
inline constexpr auto kChoices<ResultForm> =
    std::to_array<NamedValue<ResultForm>>({{"md", ResultForm::md},
                                           {"csv", ResultForm::csv},
                                           {"json", ResultForm::json},
                                           {"jsonl", ResultForm::jsonl}});
template <>
inline constexpr auto kChoices<SampleFormat> = std::to_array<NamedValue<SampleFormat>>(
    {{"tokens", SampleFormat::tokens},
     {"messages", SampleFormat::messages},
     {"alpaca", SampleFormat::alpaca},
     {"sharegpt", SampleFormat::sharegpt},
     {"completion", SampleFormat::completion},
     {"completion-messages", SampleFormat::completion_messages},
     {"text", SampleFormat::text}});
template <>
inline constexpr auto kChoices<TrainOn> =
    std::to_array<NamedValue<TrainOn>>({{"all", TrainOn::all}, {"last", TrainOn::last}});
template <>
inline constexpr auto kChoices<TooLong> = std::to_array<NamedValue<TooLong>>(
    {{"error", TooLong::error}, {"cut", TooLong::cut}, {"drop", TooLong::drop}});
template <>
inline constexpr auto kChoices<RateSchedule> =
    std::to_array<NamedValue<RateSchedule>>({{"cosine", RateSchedule::cosine},
                                             {"linear", RateSchedule::linear},
                                             {"constant", RateSchedule::constant}});
template <>
inline constexpr auto kChoices<RecomputeChoice> =
    std::to_array<NamedValue<RecomputeChoice>>({{"auto", RecomputeChoice::automatic},
                                                {"never", RecomputeChoice::never},
                                                {"always", RecomputeChoice::always}});
template <>
inline constexpr auto kChoices<OnNonfinite> = std::to_array<NamedValue<OnNonfinite>>(
    {{"stop", OnNonfinite::stop}, {"skip", OnNonfinite::skip}});
template <>
inline constexpr auto kChoices<PlanJob> =
    std::to_array<NamedValue<PlanJob>>({{"generate", PlanJob::generate},
                                        {"serve", PlanJob::serve},
                                        {"score", PlanJob::score},
                                        {"sft", PlanJob::sft}});
template <>
inline constexpr auto kChoices<StudyJob> =
    std::to_array<NamedValue<StudyJob>>({{"prompt", StudyJob::prompt},
                                         {"generate", StudyJob::generate},
                                         {"sft", StudyJob::sft},
                                         {"layer", StudyJob::layer},
                                         {"exchange", StudyJob::exchange}});
template <>
inline constexpr auto kChoices<LogLevel> =
    std::to_array<NamedValue<LogLevel>>({{"error", LogLevel::error},
                                         {"warning", LogLevel::warning},
                                         {"info", LogLevel::info},
                                         {"debug", LogLevel::debug}});

/// Their names alone.
template <typename Enum>
inline constexpr auto kChoiceNames = [] {
  std::array<std::string_view, kChoices<Enum>.size()> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kChoices<Enum>[i].name;
  return names;
}();

/// The name of a value.
template <typename Enum>
constexpr std::string_view choice_name(Enum value) {
  for (const auto& choice : kChoices<Enum>) {
    if (choice.value == value) return choice.name;
  }
  return "";
}

/// "auto" and all layouts but f32, which is what --precision fp32 is for.
inline constexpr auto kWantedLayoutNames = [] {
  std::array<std::string_view, kLayoutNames.size() + 1> names = {"auto"};
  for (std::size_t i = 0; i < kLayoutNames.size(); ++i) names[i + 1] = kLayoutNames[i];
  return names;
}();

/// "auto" and all formats of training data.
inline constexpr auto kWantedSampleFormatNames = [] {
  std::array<std::string_view, kChoices<SampleFormat>.size() + 1> names = {"auto"};
  for (std::size_t i = 1; i < names.size(); ++i) names[i] = kChoices<SampleFormat>[i - 1].name;
  return names;
}();

inline constexpr std::array<std::string_view, 6> kIsaNames = {"auto",   "scalar",      "avx2",
                                                              "avx512", "avx512_bf16", "amx"};
inline constexpr std::array<std::string_view, 7> kKernelIsaNames = {
    "auto", "all", "scalar", "avx2", "avx512", "avx512_bf16", "amx"};

/// A member of Options that holds one of some named values.
struct ChoiceField {
  std::span<const std::string_view> names;               // in the order of --help
  bool (*set)(Options& options, std::string_view name);  // false: no such value
  std::string (*get)(const Options& options);            // the name of its value
  /// What else is to be said of a name that is no value: "; ...", or nothing.
  std::string_view (*remark)(std::string_view name) = [](std::string_view) {
    return std::string_view();
  };
};

/// A member that is one of kChoices.
template <auto kMember>
constexpr ChoiceField one_of() {
  using Enum = std::remove_cvref_t<decltype(std::declval<Options>().*kMember)>;
  return {.names = kChoiceNames<Enum>,
          .set =
              [](Options& options, std::string_view name) {
                for (const auto& choice : kChoices<Enum>) {
                  if (choice.name == name) return options.*kMember = choice.value, true;
                }
                return false;
              },
          .get = [](const Options& options) { return std::string(choice_name(options.*kMember)); }};
}

/// A member that is a layout, also in another spelling, or nothing for "auto".
template <std::optional<Layout> Options::*kMember>
constexpr ChoiceField a_layout() {
  return {.names = kWantedLayoutNames,
          .set =
              [](Options& options, std::string_view name) {
                options.*kMember = layout_from_name(canonical_layout_name(name));
                return name == "auto" ||
                       (options.*kMember && (options.*kMember)->format != Format::f32);
              },
          .get = [](const Options& options) { return wanted_name(options.*kMember); },
          .remark = foreign_layout_remark};
}

/// Options::isa, with or without "all".
template <bool kHasAll>
constexpr ChoiceField an_isa() {
  return {.names = kHasAll ? std::span<const std::string_view>(kKernelIsaNames) : kIsaNames,
          .set =
              [](Options& options, std::string_view name) {
                options.isa = {.isa = isa_from_name(name), .all = kHasAll && name == "all"};
                return options.isa.isa || options.isa.all || name == "auto";
              },
          .get =
              [](const Options& options) {
                if (options.isa.isa) return std::string(isa_name(*options.isa.isa));
                return std::string(options.isa.all ? "all" : "auto");
              }};
}

}  // namespace moesaic
