#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/comm_options.h"
#include "comm/communicator.h"

namespace moesaic {

/// Communicators of `size` ranks that are threads of this process: element r is for the thread that
/// plays rank r. Rows in a RowMemory are read where they lie, others are copied once.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int size, const CommOptions& options = {});

/// Runs `body` on `size` ranks, each in its own thread, and returns when all have ended. If one
/// throws, the others get Error{peer} from the calls they wait in, and the first error is rethrown.
void run_thread_ranks(int size, const std::function<void(Communicator&)>& body,
                      const CommOptions& options = {});

}  // namespace moesaic
