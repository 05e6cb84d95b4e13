#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/options/options.h"
#include "src/model/model_config.h"

namespace moesaic {

/// Whether the job is of a layer, and needs a shape.
[[nodiscard]] bool is_shape_job(StudyJob job) noexcept;

/// Whether the option of `study point` makes a difference to a point of this job.
[[nodiscard]] bool job_takes(StudyJob job, std::string_view option) noexcept;

/// Whether it makes none to a point of any job.
[[nodiscard]] bool changes_no_point(std::string_view option) noexcept;

/// Names of the options that some jobs alone take, or none; all others make a difference to all.
[[nodiscard]] std::vector<std::string_view> options_of_some_jobs();

/// Tokens of a sequence, or a sample, of the point's job.
[[nodiscard]] std::int64_t sequence_tokens(const Options& options) noexcept;
/// context_note() of it.
[[nodiscard]] std::string sequence_note(const Options& options, const ModelConfig& config);

}  // namespace moesaic
