#pragma once

namespace moesaic {

/// Throws Error{resource} for what would end this process inside MPI's start, with a page of
/// messages or a signal: a limit on the address space that MPI's own libraries exceed, and a
/// directory for temporary files that cannot be written.
void require_room_to_start();

}  // namespace moesaic
