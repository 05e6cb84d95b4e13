#pragma once

#include "src/jinja/run.h"

namespace moesaic::jinja {

/// Sets the functions that every template has: range, dict, namespace, raise_exception and
/// strftime_now.
void assign_globals(Run& run);

}  // namespace moesaic::jinja
