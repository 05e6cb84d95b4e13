#pragma once

#include <cstdint>
#include <functional>

#include "launch/job/runtime.h"

namespace moesaic {

/// Hears how much of an input has been read.
using ReadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// agree_on_work() for reading texts on rank 0, however long they take to come: `body` calls what
/// it is given several times a second, so that the other ranks wait. Throws Interrupted if a rank
/// is asked to stop meanwhile. Collective.
void read_texts(const Runtime& runtime, const std::function<void(const ReadProgress&)>& body);

}  // namespace moesaic
