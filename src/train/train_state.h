#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/lora/adapter_exchange.h"

namespace moesaic {

/// What AdamW keeps, in the order of AdapterSet::masters().
struct Moments {
  std::vector<float> first;
  std::vector<float> second;
  std::int64_t updates = 0;  ///< steps that were not left out
};

/// How far a run has come.
struct TrainProgress {
  std::int64_t steps = 0;  ///< done
  std::string digest;      ///< of all that decides the results: data, model, options
};

/// Checkpoints of a run, directories OUT/checkpoint-N after N steps. One is written beside its
/// place and takes its name when all of it is on the disk, so that what has the name is whole. They
/// do not depend on the ranks that write or read them.
class TrainCheckpoints {
 public:
  TrainCheckpoints(std::string directory, std::span<const AdapterSpec> all)
      : directory_(std::move(directory)), all_(all) {}

  struct State {
    TrainProgress progress;
    std::span<float> masters;
    Moments& moments;
  };
  /// Bytes that one takes on the disk.
  [[nodiscard]] std::int64_t bytes() const;
  /// Writes one on rank 0, then removes all but the newest `keep`. Collective. Throws
  /// Error{resource} when the disk refuses.
  void save(const State& state, const AdapterExchange& exchange, std::int64_t keep) const;
  /// Steps of the newest one that is whole; nothing if there is none. For rank 0.
  [[nodiscard]] std::optional<std::int64_t> newest() const;
  /// The state of a checkpoint, on all ranks. Collective. Throws Error{file} on rank 0 for one that
  /// is broken or of other adapters.
  [[nodiscard]] TrainProgress load(std::int64_t steps, const AdapterExchange& exchange,
                                   std::span<float> masters, Moments& moments) const;
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
