#pragma once

#include "comm/communicator.h"

/// What every transport must do, as checks that all ranks of a group call together. They throw or
/// record GoogleTest failures. All ranks know all data, so each can verify every byte alone.
namespace moesaic::conformance {

void collectives(Communicator& comm);
/// Nothing at all, one sender, one receiver, repeated rows, odd row sizes, strides.
void row_patterns(Communicator& comm);
/// Exchanges that outgrow every buffer, small ones between them.
void growing_rows(Communicator& comm);
/// Many at a time, finished in any order, other calls between them; their rows stay as long as
/// their handles.
void exchanges_under_way(Communicator& comm);
void rows_stay_while_others_pass(Communicator& comm);
/// Rows in memory of the communicator, which is written again at once.
void memory_is_renewed_while_it_is_read(Communicator& comm);
/// Nobody waits: progress() is enough.
void rows_move_without_waiting(Communicator& comm);
/// Rows that are told to be written after the start.
void rows_written_later(Communicator& comm);
/// The first of them are here before the last are written, if they come from another node.
void rows_leave_in_pieces(Communicator& comm);
/// One message a node, and each row once.
void rows_cross_once_a_node(Communicator& comm);
/// With a random delay now and then.
void random_exchanges(Communicator& comm, int num_exchanges);
/// Sums of integers while other calls go on.
void pending_sums(Communicator& comm);
void splits(Communicator& comm);
/// `comm` must share a node.
void shared_memory(Communicator& comm);

/// Ranks that wait for long sleep most of the time.
void long_waits_cost_little(Communicator& comm);

/// All of the above; the random exchanges in the given number.
void everything(Communicator& comm, int num_exchanges);

}  // namespace moesaic::conformance
