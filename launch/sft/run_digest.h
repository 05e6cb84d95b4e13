#pragma once

#include <optional>
#include <span>
#include <string>

#include "launch/job/runtime.h"
#include "launch/job/session.h"
#include "launch/sft/sft_data.h"
#include "src/lora/adapter_set.h"
#include "src/train/train_state.h"

namespace moesaic {

/// Of all that decides the bytes of a run's result.
struct RunDigest {
  std::string settings{};  ///< a text of all but the adapter's values
  std::string model{};     ///< checksum, also in the settings
  std::string data{};      ///< the same
  /// Checksum of the values of --lora, "" without one; nothing where a checkpoint stands in for it.
  std::optional<std::string> adapter = "";

  /// The checksum of all.
  [[nodiscard]] std::string text() const;
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
