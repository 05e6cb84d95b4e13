#pragma once

#include <span>
#include <string>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/sft_data.h"
#include "src/lora/adapter_set.h"
#include "src/train/train_state.h"

namespace moesaic {

/// Checksums of all that decides the bytes of a run's result, and of the model and the data alone.
struct RunDigest {
  std::string all{};
  std::string model{};
  std::string data{};
};

/// That of a run which trains `specs`, on rank 0; empty on others. Collective.
[[nodiscard]] RunDigest find_digest(const Runtime& runtime, const OpenModel& model,
                                    const SftData& data, std::span<const AdapterSpec> specs,
                                    double dropout);

/// Why a checkpoint of OUTDIR, which is of another digest than `own_run`, does not fit: "was made
/// with --lr 0.1, not 0.2".
[[nodiscard]] std::string other_run(const Command& command, const TrainProgress& its,
                                    const RunDigest& own_run);

}  // namespace moesaic
