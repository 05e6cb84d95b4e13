#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/lora/adapter_exchange.h"

namespace moesaic {

/// What AdamW keeps, in the order of AdapterSet::masters().
struct Moments {
  std::vector<float> first;
  std::vector<float> second;
};

/// How far a run has come.
struct TrainProgress {
  std::int64_t steps = 0;    ///< done
  std::int64_t updates = 0;  ///< of them, those that were not left out
  std::string digest;        ///< of all that decides the results: data, model, options
};

inline constexpr std::string_view kCheckpointPrefix = "checkpoint-";

/// Checkpoints of a run, directories OUT/checkpoint-N after N steps. One is written beside its
/// place and takes its name when all of it is on the disk, so that what has the name is whole. They
/// do not depend on the ranks that write or read them.
class TrainCheckpoints {
 public:
  TrainCheckpoints(std::string directory, std::span<const AdapterSpec> all)
      : directory_(std::move(directory)), all_(all) {}

  struct State {
    std::span<float> masters;
    Moments& moments;
  };
  /// Bytes that one takes on the disk.
  [[nodiscard]] std::int64_t bytes() const;
  /// Writes one on rank 0, then removes all but the newest `keep`. Collective. Throws
  /// Error{resource} when the disk refuses.
  void save(const TrainProgress& progress, const State& state, const AdapterExchange& exchange,
            std::int64_t keep) const;
  /// Whole ones that are there. For rank 0.
  [[nodiscard]] std::int64_t count() const { return std::ssize(steps_there()); }
  /// Steps of the newest one that is whole; nothing if there is none. For rank 0.
  [[nodiscard]] std::optional<std::int64_t> newest() const;
  /// What the checkpoint after `steps` says of its run. For rank 0. Throws Error{file} for one that
  /// is broken.
  [[nodiscard]] TrainProgress progress(std::int64_t steps) const;
  /// Overwrites `state` with that of the checkpoint, whose files only rank 0 reads. Collective.
  /// Throws Error{file} on rank 0 for one that is broken or of other adapters.
  void load(std::int64_t steps, const AdapterExchange& exchange, const State& state) const;
  [[nodiscard]] std::string path(std::int64_t steps) const;

 private:
  void write_values(const std::string& folder, const State& state,
                    const AdapterExchange& exchange) const;
  void remove_all_but(std::int64_t keep) const;
  [[nodiscard]] std::vector<std::int64_t> steps_there() const;

  std::string directory_;
  std::span<const AdapterSpec> all_;
};

}  // namespace moesaic
