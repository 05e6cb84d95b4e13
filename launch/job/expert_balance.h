#pragma once

#include "launch/job/session.h"
#include "src/parallel/expert_record.h"

namespace moesaic {

/// Throws as require_apart(), and Error{resource} if --record-load names what cannot be written,
/// before hours of work.
/// Collective.
void require_recordable(const Runtime& runtime);

/// Rows for the experts of the rank that has most, by the mean of all ranks, mean over layers.
struct ExpertBalance {
  double contiguous = 1;  // as it would be in contiguous slices
  double placed = 1;      // as it was
};

/// Rows that the experts of all ranks got since an engine's statistics were reset.
class ExpertLoads {
 public:
  /// Collective. Both must outlive this.
  ExpertLoads(const Runtime& runtime, Engine& engine);

  [[nodiscard]] ExpertBalance balance() const;
  /// Writes them where --record-load says, if it says so. Collective.
  void record() const;

 private:
  const Runtime& runtime_;
  const ModelConfig& config_;
  const ModelPlacement& placement_;
  ExpertRows rows_;
};

}  // namespace moesaic
