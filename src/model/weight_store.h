#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "comm/long_work.h"
#include "kernels/packed_matrix.h"
#include "src/model/matrix_packer.h"
#include "src/model/weight_plan.h"
#include "src/model/weight_sink.h"

namespace moesaic {

/// What weights take, known before they are loaded.
struct WeightBytes {
  /// Bytes of packed matrices, by Format.
  using ByFormat = std::array<std::int64_t, kNumFormats>;

  std::int64_t rank_bytes = 0;       // memory of this rank alone
  std::int64_t node_bytes = 0;       // memory held once by the ranks of this node
  std::int64_t device_bytes = 0;     // memory of this rank's GPU
  std::int64_t mapped_bytes = 0;     // used where they lie in a converted directory
  std::int64_t embedding_bytes = 0;  // read where they lie on disk, row by row
  std::int64_t job_bytes = 0;        // most that a thread that loads has mapped, and its scratch
  ByFormat experts{};                // this rank's
  ByFormat others{};                 // of the model
};

/// How weights of a converted directory are loaded.
struct StoredWeights {
  bool map = false;     ///< use them where they are mapped, do not copy them
  bool verify = false;  ///< compare checksums
};

/// Lays out planned weights in memory, then allocates it and fills it: packs matrices of a
/// checkpoint, copies or maps those of a converted directory.
class WeightStore {
 public:
  /// `files` and what the weights point to must outlive this. Throws Error{usage} for
  /// StoredWeights that a checkpoint cannot give.
  WeightStore(const ModelFiles& files, std::vector<PlannedWeight> weights,
              const StoredWeights& stored);

  [[nodiscard]] const WeightBytes& bytes() const noexcept { return bytes_; }

  /// call(weight, bytes) for each matrix of an expert.
  void for_each_expert(
      const std::function<void(const PlannedWeight& weight, std::int64_t bytes)>& call) const;

  struct Memory {
    std::shared_ptr<SharedMemory> node;
    ByteBuffer rank;
    const std::byte* device = nullptr;  // an address of the sink's
    std::int64_t read_bytes = 0;        // of the files, by this rank
  };
  /// Called by one thread of this rank with loaded and all bytes of this rank's share.
  using Progress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

  /// Who takes part in loading.
  struct Team {
    Communicator& node;  // the ranks of this node share the work for what they share
    LongWork& work;      // of all ranks; finished here
    ThreadPool& pool;
    WeightSink* device = nullptr;  // for weights of WeightHome::device
  };
  /// Sets the weights' targets. Collective. Throws Error{file} for weights that are not what they
  /// should be.
  [[nodiscard]] Memory load(const Team& team, const Progress& progress);

 private:
  struct Item {
    PlannedWeight weight;
    std::int64_t bytes;   // panels, then the order of k; or elements
    std::int64_t offset;  // from the start of its home's memory; kMapped: in no memory
  };
  struct Job;
  struct Worker;

  void add(PlannedWeight planned);
  void place(const Item& item, const Memory& memory) const;
  [[nodiscard]] std::vector<Job> jobs_of(int node_rank, int node_size) const;
  void run(const Job& job, Worker& worker) const;
  void pack(const Job& job, Worker& worker) const;
  void fill_vector(const Item& item) const;
  void copy(const Job& job, const Worker& worker) const;
  void run_all(const std::vector<Job>& jobs, const Team& team, const Progress& progress,
               Memory& memory) const;
  void release_pages() const noexcept;
  void share_scales(Communicator& node, const std::vector<Job>& jobs) const;
  void check_order(const Item& item) const;

  const ModelFiles& files_;
  StoredWeights stored_;
  std::vector<Item> items_;
  WeightBytes bytes_;
};

}  // namespace moesaic
