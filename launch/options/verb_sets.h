#pragma once

#include <cstdint>

#include "launch/options/options.h"

/// Sets of verbs, a bit each, for OptionRow::verbs. A name means the same in all parts of the
/// table.
namespace moesaic::verbs {

constexpr std::uint32_t bit(Verb verb) {
  return 1U << static_cast<unsigned>(verb);
}

inline constexpr std::uint32_t kChat = bit(Verb::chat);
inline constexpr std::uint32_t kGenerate = bit(Verb::generate);
inline constexpr std::uint32_t kServe = bit(Verb::serve);
inline constexpr std::uint32_t kScore = bit(Verb::score);
inline constexpr std::uint32_t kSft = bit(Verb::sft);
inline constexpr std::uint32_t kConvert = bit(Verb::convert);
inline constexpr std::uint32_t kTokenize = bit(Verb::tokenize);
inline constexpr std::uint32_t kInspect = bit(Verb::inspect);
inline constexpr std::uint32_t kDoctor = bit(Verb::doctor);
inline constexpr std::uint32_t kPlan = bit(Verb::plan);  // takes those of the verbs that it plans
inline constexpr std::uint32_t kBenchModel = bit(Verb::bench_model);
inline constexpr std::uint32_t kBenchKernels = bit(Verb::bench_kernels);
inline constexpr std::uint32_t kBenchLayer = bit(Verb::bench_layer);
inline constexpr std::uint32_t kBenchExchange = bit(Verb::bench_exchange);
inline constexpr std::uint32_t kBenchSft = bit(Verb::bench_sft);
inline constexpr std::uint32_t kStudyPoint = bit(Verb::study_point);
inline constexpr std::uint32_t kStudyRun = bit(Verb::study_run);
inline constexpr std::uint32_t kStudyReport = bit(Verb::study_report);
inline constexpr std::uint32_t kStudyPredict = bit(Verb::study_predict);
inline constexpr std::uint32_t kStudySmpi = bit(Verb::study_export_smpi);

/// Take the file of a study.
inline constexpr std::uint32_t kStudies = kStudyRun | bit(Verb::study_points) | kStudyReport |
                                          kStudyPredict | bit(Verb::study_export_extrap) |
                                          kStudySmpi;
/// Start no MPI.
inline constexpr std::uint32_t kWithoutRanks = kStudies | kPlan;
/// Write texts.
inline constexpr std::uint32_t kTexts = kChat | kGenerate | kServe;
/// Run passes of a model that is not trained, for users.
inline constexpr std::uint32_t kInference = kTexts | kScore | kBenchModel;
/// Train, or take the time of it.
inline constexpr std::uint32_t kTraining = kSft | kBenchSft | kStudyPoint;
/// Run a model.
inline constexpr std::uint32_t kEngine = kInference | kTraining;
/// Read a model.
inline constexpr std::uint32_t kFiles = kEngine | kConvert | kTokenize | kInspect;
/// Know chat templates.
inline constexpr std::uint32_t kTemplates = kTexts | kTokenize;
/// Run parts without a model.
inline constexpr std::uint32_t kParts = kBenchKernels | kBenchLayer;
/// Run one layer of a given shape.
inline constexpr std::uint32_t kLayers = kBenchLayer | kBenchExchange;
/// Print lines that take --seconds each.
inline constexpr std::uint32_t kTables = kParts | kBenchExchange;
/// Can be interrupted.
inline constexpr std::uint32_t kLong = kEngine | kConvert | kTables;
/// Have ranks.
inline constexpr std::uint32_t kRanks = kFiles | kTables | kDoctor;
/// Have ranks that send rows.
inline constexpr std::uint32_t kExchanging = kEngine | kLayers | kDoctor;

}  // namespace moesaic::verbs
