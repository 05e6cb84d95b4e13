#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "base/topology.h"
#include "launch/job/rank_info.h"

namespace moesaic {

/// On which cores the threads of a rank stay.
struct Binding {
  std::vector<UsableCore> cores{};  ///< one for each thread; none: the system chooses
  std::string reason{};             ///< why there are none
};

/// Gives each thread of rank `self` a core of its own. Ranks of a machine with one cpuset share
/// its cores out: neighbours for each, so that as many ranks as NUMA domains get one each. Threads
/// stay unbound where they are more than cores, where cpusets overlap otherwise or a quota takes a
/// part of each core away, and where they leave cores of the whole machine to others, who may want
/// the same ones: as many as there are ranks or more, which is not what equal shares leave over.
/// `topology`: of this rank, before it was bound.
[[nodiscard]] Binding plan_binding(std::span<const RankInfo> ranks, std::size_t self,
                                   const Topology& topology);

/// Binds each thread of the pool to a core of `binding`; a pool of more threads than it has may use
/// all of them. False where the system refuses. Not while the pool is at work.
[[nodiscard]] bool bind_threads(ThreadPool& pool, const Binding& binding);

/// "cpus 0 2 4 6, NUMA node 0", or why they are not bound.
[[nodiscard]] std::string binding_text(const Binding& binding);

}  // namespace moesaic
