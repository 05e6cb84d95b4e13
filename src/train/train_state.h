#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "src/lora/adapter_writer.h"

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
  std::string model{};       ///< and of the model alone, to tell what is another
  std::string data{};        ///< the same
  std::string adapter{};     ///< the same of the one that it began with; empty: a new one
};

/// N of "checkpoint-N", the name of a checkpoint's directory; nothing for other names.
[[nodiscard]] std::optional<std::int64_t> checkpoint_steps(std::string_view name);

/// Whether it is the name of a checkpoint's directory until it is whole.
[[nodiscard]] bool is_checkpoint_part(std::string_view name);

/// Whether a run writes a file of this name into the directory of a checkpoint.
[[nodiscard]] bool is_of_checkpoint(std::string_view file);

/// Whether a directory has what runs go on from, or a part of it: not, where it is another
/// program's, which may have an adapter as well.
[[nodiscard]] bool has_train_state(const std::string& directory);

/// Removes what a run has written into a checkpoint's directory, and this where nothing else is in
/// it. Why the first of its files that stays cannot be removed.
std::error_code remove_checkpoint(const std::string& directory);

/// Checkpoints of a run, directories OUT/checkpoint-N after N steps: a state to go on from, and the
/// adapter. One is written beside its place and takes its name when all of it is on the disk; a
/// checksum tells what of the state has been damaged since. They do not depend on the ranks that
/// write or read them.
class TrainCheckpoints {
 public:
  /// `adapter` refers to what must outlive this.
  TrainCheckpoints(std::string directory, SavedAdapter adapter)
      : directory_(std::move(directory)), adapter_(std::move(adapter)) {}

  struct State {
    std::span<float> masters;
    Moments& moments;
  };
  /// Bytes that one takes on the disk.
  [[nodiscard]] std::int64_t bytes() const;
  /// Which of them stay: the newest, and one besides.
  struct Kept {
    std::int64_t newest = 1;
    std::int64_t also = -1;  ///< after so many steps, if there is one; negative: none
  };
  /// Writes one on rank 0, then removes those that find_newest() found damaged, and of the others
  /// what is not kept. Collective. Throws Error{resource} when the disk refuses.
  void save(const TrainProgress& progress, const State& state, const AdapterExchange& exchange,
            const Kept& kept);
  /// How many are there that take as much of the disk as a whole one. For rank 0.
  [[nodiscard]] std::int64_t count_full() const;

  /// Hears how many bytes of a checkpoint are read.
  using Watch = std::function<void(std::int64_t done, std::int64_t total)>;
  /// What the newest one that is whole says of its run; nothing if none is there. Reads all of it,
  /// and of newer ones, which are damaged(). For rank 0. Throws Error{file} if all that are there
  /// are damaged, Error{usage} for one of another version of this program.
  [[nodiscard]] std::optional<TrainProgress> find_newest(const Watch& watch = {});
  /// What is wrong with each that find_newest() passed over, the newest first.
  [[nodiscard]] std::vector<std::string> damaged() const;
  /// Removes what is not kept of those up to `newest`, which this run has written or gone on from,
  /// and which are not damaged. For rank 0.
  void remove_all_but(const Kept& kept, std::int64_t newest) const;

  /// Overwrites `state` with that of a checkpoint that was found whole, whose files only rank 0
  /// reads. Collective. Throws Error{file} on rank 0 for one of other adapters.
  void load(std::int64_t steps, const AdapterExchange& exchange, const State& state) const;
  [[nodiscard]] std::string path(std::int64_t steps) const;

 private:
  struct Damaged {
    std::int64_t steps = 0;
    std::string what;
  };
  /// Their checksum on rank 0.
  std::uint64_t write_values(const std::string& folder, const State& state,
                             const AdapterExchange& exchange) const;
  void take_place(const std::string& part, const std::string& place) const;
  [[nodiscard]] TrainProgress read_whole(std::int64_t steps, const Watch& watch) const;
  [[nodiscard]] std::vector<std::int64_t> steps_there(std::error_code& error) const;
  [[nodiscard]] std::int64_t num_values() const;
  [[nodiscard]] std::int64_t state_bytes() const;

  std::string directory_;
  SavedAdapter adapter_;
  std::vector<Damaged> damaged_;
};

}  // namespace moesaic
