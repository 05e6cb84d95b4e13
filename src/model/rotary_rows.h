#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/vector_kernels.h"
#include "src/model/batch.h"
#include "src/model/rotary.h"

namespace moesaic {

/// The rotary angles of a batch's rows, which all layers of a kind share.
class RotaryRows {
 public:
  explicit RotaryRows(const RopeConfig& config) : rotary_(config), form_(config.form) {}

  void begin(const Batch& batch, ThreadPool& pool);
  /// Of the last batch; valid until the next.
  [[nodiscard]] RotaryAngles row(std::int64_t index) const {
    const std::int64_t first = index * rotary_.half();
    return {cosines_.data() + first, sines_.data() + first, rotary_.half(), form_};
  }

 private:
  Rotary rotary_;
  RotaryForm form_;
  Buffer<float> cosines_;  // [rows, half]
  Buffer<float> sines_;    // [rows, half]
};

}  // namespace moesaic
