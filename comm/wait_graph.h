#pragma once

#include <vector>

namespace moesaic {

/// [ranks] for whom each rank waits, without itself. It needs all of them to go on.
using WaitGraph = std::vector<std::vector<int>>;

/// Where the waits lead: whoever follows them from rank to rank comes to a rank that waits for
/// nobody, or to ranks that wait for each other in circles and for nobody else. For each such place
/// the ranks to name, ascending: of those in circles the ones that lie on all circles, if there are
/// such. Ordered by their first ranks.
[[nodiscard]] std::vector<std::vector<int>> where_waits_lead(const WaitGraph& awaits);

}  // namespace moesaic
