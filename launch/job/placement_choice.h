#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/job/runtime.h"
#include "src/model/model_config.h"
#include "src/parallel/expert_record.h"

namespace moesaic {

/// Whether a word that is no other value of an option is meant as a file: it looks like a path, or
/// there is one of this name.
[[nodiscard]] bool is_meant_as_file(const std::string& word);

/// A model as its placement sees it.
[[nodiscard]] ModelExperts experts_of(const ModelConfig& config);

/// What --placement says, for any number of ranks.
class PlacementChoice {
 public:
  /// Reads the file, if it is one. Throws Error{file} for one that cannot be read, Error{usage} for
  /// a word that is neither a way to deal nor a file.
  explicit PlacementChoice(const std::string& placement);

  /// Experts of a model without any are one, for the sake of who asks. Throws Error{usage} for more
  /// ranks than experts, Error{file} for a record of another model.
  [[nodiscard]] ModelPlacement place(const ModelConfig& config, int num_ranks) const;
  /// Whether each rank's experts follow one on the other.
  [[nodiscard]] bool is_contiguous() const noexcept { return !round_robin_ && !record_; }
  /// Of the record; 0 without one.
  [[nodiscard]] std::uint64_t fingerprint() const;

 private:
  bool round_robin_ = false;
  std::optional<ExpertRecord> record_;
};

/// The experts of all ranks, as the options say. Collective. Throws AgreedError if ranks have read
/// different files.
[[nodiscard]] ModelPlacement place_experts(const Runtime& runtime, const ModelConfig& config);

}  // namespace moesaic
