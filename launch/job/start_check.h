#pragma once

namespace moesaic {

/// Throws for what would end this process inside MPI's start, with a page of messages or a signal:
/// Error{usage} for tasks of srun that know nothing of each other, Error{resource} for a limit on
/// the address space that MPI's own libraries exceed, and for a directory for temporary files that
/// cannot be written.
void require_ways_to_start();

}  // namespace moesaic
