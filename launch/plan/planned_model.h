#pragma once

#include <string>

#include "launch/job/session.h"

namespace moesaic {

/// A model that is planned for; its weights may be elsewhere.
struct PlannedModel {
  OpenModel model;
  std::string weights_source;  // of their sizes, for reports
  bool has_weights = true;     // here
};

/// What --model names: a directory with weights, of which the headers are read; a directory with a
/// config.json and no weights, or such a file by itself: then they are counted as save_pretrained
/// would write them in the type of numbers that the file names. Throws Error{file} as open_model(),
/// and Error{usage} where the file says that they are quantised: their layouts stand in their
/// headers alone, unless options ask for others.
[[nodiscard]] PlannedModel open_planned_model(const Options& options);

}  // namespace moesaic
