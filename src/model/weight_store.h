#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "kernels/packed_matrix.h"
#include "src/base/buffer.h"
#include "src/base/thread_pool.h"
#include "src/checkpoint/matrix_source.h"

namespace moesaic {

/// Lays out packed matrices and vectors in memory and fills them from a checkpoint. First
/// everything is added, then the bytes are known, then load() allocates and packs.
class WeightStore {
 public:
  enum class Home {
    node,  ///< once for the ranks of a node, packed by all of them together
    rank   ///< in this rank's own memory
  };

  /// `parts` stand one below the other in the packed matrix. `target` is filled by load() and must
  /// stay where it is until then.
  void add_matrix(Home home, Format format, std::vector<MatrixSource> parts, PackedMatrix* target);
  /// A vector of f32, the concatenation of all parts' elements.
  void add_vector(Home home, std::vector<MatrixSource> parts, std::span<const float>* target);

  [[nodiscard]] std::int64_t bytes(Home home) const noexcept {
    return home == Home::node ? node_bytes_ : rank_bytes_;
  }

  struct Memory {
    std::shared_ptr<SharedMemory> node;
    ByteBuffer rank;
    std::int64_t read_bytes = 0;  // of the checkpoint, by this rank
  };
  /// Called by one thread of this rank with packed and all bytes of this rank's share.
  using Progress = std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)>;

  /// Collective over `node`: its ranks share the work for what they share.
  [[nodiscard]] Memory load(Communicator& node, ThreadPool& pool, const Progress& progress);

 private:
  struct Item {
    Home home;
    std::vector<MatrixSource> parts;
    std::int64_t offset;  // bytes from the start of its home's memory
    PackedMatrix* matrix;
    std::span<const float>* vector;
  };
  struct Job;

  std::int64_t reserve(Home home, std::int64_t bytes);
  [[nodiscard]] std::vector<Job> jobs_of(int node_rank, int node_size) const;
  void pack_panel(const Item& item, std::int64_t panel, std::vector<float>& scratch) const;
  void fill_vector(const Item& item) const;

  std::vector<Item> items_;
  std::int64_t node_bytes_ = 0;
  std::int64_t rank_bytes_ = 0;
};

}  // namespace moesaic
