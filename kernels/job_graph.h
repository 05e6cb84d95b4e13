#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/gemm_kernel.h"
#include "kernels/job_counters.h"

namespace moesaic {

/// Slabs of packed rows and the jobs that pack and multiply them: the one scheduler of all
/// products.
///
/// Packed slabs lie in a ring: a slab is packed where older ones have been, once those have been
/// multiplied. Threads get the jobs one by one in the order in which they were added, and a job
/// waits for earlier ones alone, which other threads have at work: so every wait ends. A job that
/// throws ends all waits; jobs that have not begun are left out. Keeps its memory between plans.
class JobGraph {
 public:
  /// Rows of a slab: their packed form and a few panels stay in a core's L2 cache together.
  static constexpr std::int64_t kSlabRows = 256;
  [[nodiscard]] static std::int64_t slab_count(std::int64_t rows) {
    return divide_up(rows, kSlabRows);
  }
  /// Of these, what one job packs.
  static constexpr std::int64_t kPackRows = 4 * kRowBlock;
  /// About this many jobs a thread even out what neighbours on the machine take away.
  static constexpr std::int64_t kJobsPerThread = 8;
  /// Multiply jobs that packed slabs hold ready: what threads have at work, and as much again.
  [[nodiscard]] static std::int64_t ready_jobs(int threads) { return 4 * std::int64_t{threads}; }
  /// Slabs that the ring has room for at most, where all are added in turn and have at least
  /// `jobs` multiply jobs.
  [[nodiscard]] static std::int64_t most_slabs_in_turn(std::int64_t jobs, int threads) {
    return divide_up(ready_jobs(threads), jobs) + 2;  // the one to pack, and room for any one
  }

  /// What a slab has to do with others; all of them are added before it, -1 means none.
  struct Slab {
    std::int64_t bytes = 0;         // of its packed form and of results that `after` slabs read
    std::ptrdiff_t after = -1;      // its packing reads the results of this slab
    std::ptrdiff_t beside = -1;     // its multiply jobs read this packed slab too
    std::ptrdiff_t continues = -1;  // its results go on from those of this slab
  };

  struct Job {
    enum class Kind : std::uint8_t { pack, multiply };
    Kind kind;
    std::size_t slab;
    std::int64_t first;  // rows to pack, or panels to multiply by: the owner of the graph knows
    std::int64_t count;
  };

  /// `count` things of a slab in jobs of at most `per_job`.
  struct Split {
    std::int64_t count;
    std::int64_t per_job;
  };

  /// What jobs do. Called by threads of the pool.
  class Work {
   public:
    virtual void pack(const Job& job, int worker) = 0;
    /// `index`: of the job in the graph.
    virtual void multiply(const Job& job, std::int64_t index, int worker) = 0;

   protected:
    ~Work() = default;
  };

  void begin();
  std::size_t add_slab(const Slab& slab);
  /// Once a slab, and before its multiply jobs.
  void add_pack_jobs(std::size_t slab, const Split& split);
  void add_multiply_jobs(std::size_t slab, const Split& split);
  /// Both, the multiply jobs once the next slab that is added like this has its pack jobs: threads
  /// that would wait for the last rows of a slab have those of the next one to pack.
  void add_in_turn(std::size_t slab, const Split& to_pack, const Split& to_multiply);
  /// Does all jobs. Rethrows the first exception of a job once no thread is at work any more.
  void run(ThreadPool& pool, Work& work);

  [[nodiscard]] const Slab& slab(std::size_t index) const { return slabs_[index].slab; }
  /// Where a slab lies, while its jobs are at work; 64-byte aligned.
  [[nodiscard]] std::byte* place(std::size_t slab) const {
    return ring_.data() + slabs_[slab].offset;
  }
  /// The job at `index`, or null behind the last.
  [[nodiscard]] const Job* job(std::int64_t index) const {
    return index < std::ssize(jobs_) ? &jobs_[static_cast<std::size_t>(index)] : nullptr;
  }
  /// Of the ring.
  [[nodiscard]] std::int64_t packed_bytes() const noexcept { return ring_.size(); }

 private:
  struct PlacedSlab {
    Slab slab;
    std::int64_t jobs = 0;       // that multiply
    std::int64_t first_job = 0;  // that packs it
    std::int64_t last_job = -1;  // that reads its place
    std::int64_t offset = 0;
    std::int64_t lap = 0;  // of the ring
    /// Slabs of pack_order_ that have to be free before this one is packed.
    std::size_t displaced_end = 0;
  };

  /// Multiply jobs whose turn has not come.
  struct Waiting {
    std::size_t slab;
    Split split;
  };

  void add_waiting();
  [[nodiscard]] std::int64_t ring_bytes(int threads) const;
  void place_slabs(int threads);
  void count_jobs();
  [[nodiscard]] bool wait_to_pack(const PlacedSlab& slab);
  [[nodiscard]] bool wait_to_multiply(std::size_t slab) const;
  [[nodiscard]] bool begin_job(const Job& job);
  void end_job(const Job& job);

  std::vector<PlacedSlab> slabs_;
  std::vector<std::size_t> pack_order_;  // slabs in the order of their first jobs
  std::vector<Job> jobs_;
  std::optional<Waiting> waiting_;
  JobCounters to_pack_;      // pack jobs of each slab that are not done
  JobCounters to_multiply_;  // multiply jobs
  JobCounters in_use_;       // jobs that read its place
  std::atomic<bool> aborted_{false};
  std::atomic<std::size_t> free_{0};  // so many slabs of pack_order_ are known to be read no more
  Buffer<std::byte> ring_;
};

}  // namespace moesaic
