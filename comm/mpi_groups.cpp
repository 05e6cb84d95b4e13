#include "comm/mpi_groups.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "comm/mpi_roll_call.h"

namespace moesaic {

std::unique_ptr<MpiHandle> mpi_world() {
  MPI_Comm world = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  return std::make_unique<MpiHandle>(world);
}

MpiJob mpi_job(const MpiHandle& world, const CommOptions& options) {
  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world.get(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
            "MPI_Comm_split_type");
  const MpiHandle ranks(machine);
  Processors processors = usable_processors();  // of all ranks: each may be bound to its own
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, processors.data(), static_cast<int>(processors.size()),
                          MPI_UINT64_T, MPI_BOR, machine),
            "MPI_Allreduce");
  const auto idle = std::make_shared<IdleTime>();
  if (!options.trace_file.empty()) {
    idle->set_trace(std::make_unique<ExchangeTrace>(options.trace_file));
  }
  if (world.size() > 1) idle->set_roll_call(std::make_unique<MpiRollCall>(world, ranks, options));
  return {options, world.rank(), idle,
          wait_policy(options.timeout, ranks.size(), processors, *idle),
          std::make_shared<std::map<std::uint64_t, std::uint64_t>>()};
}

MpiJob for_group(MpiJob job, const MpiHandle& comm) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(comm.get(), &group), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto job_ranks = std::make_shared<std::vector<int>>(ranks.size());
  const int code =
      MPI_Group_translate_ranks(group, comm.size(), ranks.data(), world, job_ranks->data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  check_mpi(code, "MPI_Group_translate_ranks");
  job.policy.job_ranks = job_ranks;
  const std::uint64_t sum = checksum(std::as_bytes(std::span(*job_ranks)));
  const std::array<std::uint64_t, 2> id = {sum, (*job.groups)[sum]++};
  job.policy.group = std::max<std::uint64_t>(1, checksum(std::as_bytes(std::span(id))));
  return job;
}

std::unique_ptr<MpiHandle> mpi_split(const MpiHandle& comm, int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm.get(), color, key, &part), "MPI_Comm_split");
  return std::make_unique<MpiHandle>(part);
}

std::unique_ptr<MpiHandle> mpi_split_node(const MpiHandle& comm, const MpiJob& job) {
  if (job.options.ranks_per_node > 0) {
    return mpi_split(comm, job.world_rank / job.options.ranks_per_node, 0);
  }
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm.get(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  return std::make_unique<MpiHandle>(node);
}

}  // namespace moesaic
