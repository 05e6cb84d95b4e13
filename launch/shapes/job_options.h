#pragma once

#include <cstdint>
#include <string_view>

#include "launch/options/options.h"

namespace moesaic {

/// Whether the job is of a layer, and needs a shape.
[[nodiscard]] bool is_shape_job(StudyJob job) noexcept;

/// Whether the option of `study point` makes a difference to a point of this job.
[[nodiscard]] bool job_takes(StudyJob job, std::string_view option) noexcept;

/// Tokens of a sequence, or a sample, of the point's job.
[[nodiscard]] std::int64_t sequence_tokens(const Options& options) noexcept;

}  // namespace moesaic
