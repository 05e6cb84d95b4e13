#pragma once

#include <memory>

#include "comm/communicator.h"

namespace moesaic {

/// `base`, and before each call a check that all ranks make the same call with arguments that fit:
/// equal sizes, roots and row widths, each rank expecting the rows that the others send. Throws
/// Error{internal} on all ranks with a message that says what each rank wanted. For tests and for
/// the search of hangs: every call costs some small all_gathers more.
[[nodiscard]] std::unique_ptr<Communicator> make_checked_communicator(
    std::unique_ptr<Communicator> base);

}  // namespace moesaic
