#pragma once

#include <string>

#include "launch/options/options.h"

namespace moesaic {

/// Makes --trace-dir, without what an earlier job has left there, which may have had more ranks or
/// others on this host. Before any rank writes; hosts may each have a directory of their own.
/// Throws Error{resource} if that cannot be. Nothing without --trace-dir.
void prepare_traces(const Options& options);

/// The file of a rank in --trace-dir; empty without it.
[[nodiscard]] std::string trace_file(const Options& options, int rank);

}  // namespace moesaic
