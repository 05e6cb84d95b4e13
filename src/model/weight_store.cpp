#include "src/model/weight_store.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

/// Items start on huge-page friendly boundaries of cache lines.
constexpr std::int64_t kAlignment = 256;
/// Panels that one job packs: enough work to hide handing it out.
constexpr std::int64_t kPanelsPerJob = 8;

std::int64_t total_rows(const std::vector<MatrixSource>& parts) {
  std::int64_t rows = 0;
  for (const MatrixSource& part : parts) rows += part.rows();
  return rows;
}

/// call(part, begin, end) for the rows [begin, end) of each part that lie in rows [first, last) of
/// all parts together.
template <typename Call>
void for_each_part(const std::vector<MatrixSource>& parts, std::int64_t first, std::int64_t last,
                   const Call& call) {
  std::int64_t start = 0;  // of the part, in the whole matrix
  for (const MatrixSource& part : parts) {
    const std::int64_t begin = std::max(first, start);
    const std::int64_t end = std::min(last, start + part.rows());
    if (begin < end) call(part, begin - start, end - start);
    start += part.rows();
  }
}

/// Reads the 16 (or last few) rows of a panel into `scratch` and packs them.
template <typename Element, typename Pack>
void pack_rows(const std::vector<MatrixSource>& parts, std::int64_t panel, Element* scratch,
               const Pack& pack) {
  std::array<const Element*, kPanelColumns> rows{};
  std::size_t count = 0;
  const std::int64_t cols = parts.front().cols();
  for_each_part(
      parts, panel * kPanelColumns, (panel + 1) * kPanelColumns,
      [&](const MatrixSource& part, std::int64_t begin, std::int64_t end) {
        Element* const out = scratch + static_cast<std::int64_t>(count) * cols;
        part.read_rows(begin, end - begin, {out, static_cast<std::size_t>((end - begin) * cols)});
        for (std::int64_t row = 0; row < end - begin; ++row) {
          rows[count++] = out + row * cols;
        }
      });
  pack(std::span(rows.data(), count), cols);
}

}  // namespace

/// Panels [first, end) of an item, or a whole vector.
struct WeightStore::Job {
  const Item* item;
  std::int64_t first;
  std::int64_t end;
  std::int64_t bytes;

  /// call(bytes) for the mapped bytes of the checkpoint that this job reads.
  template <typename Call>
  void for_each_source(const Call& call) const {
    if (item->matrix == nullptr) return;
    for_each_part(item->parts, first * kPanelColumns, end * kPanelColumns,
                  [&](const MatrixSource& part, std::int64_t from, std::int64_t to) {
                    const std::size_t row_bytes =
                        part.bytes().size() / static_cast<std::size_t>(part.rows());
                    call(part.bytes().subspan(static_cast<std::size_t>(from) * row_bytes,
                                              static_cast<std::size_t>(to - from) * row_bytes));
                  });
  }
};

std::int64_t WeightStore::reserve(Home home, std::int64_t bytes) {
  std::int64_t& total = home == Home::node ? node_bytes_ : rank_bytes_;
  const std::int64_t offset = total;
  total += round_up(bytes, kAlignment);
  return offset;
}

void WeightStore::add_matrix(Home home, Format format, std::vector<MatrixSource> parts,
                             PackedMatrix* target) {
  *target = {.format = format, .rows = total_rows(parts), .depth = parts.front().cols()};
  const std::int64_t offset = reserve(home, target->bytes());
  items_.push_back({home, std::move(parts), offset, target, nullptr});
}

void WeightStore::add_vector(Home home, std::vector<MatrixSource> parts,
                             std::span<const float>* target) {
  std::int64_t elements = 0;
  for (const MatrixSource& part : parts) elements += part.rows() * part.cols();
  *target = {static_cast<const float*>(nullptr), 0};
  const std::int64_t offset = reserve(home, elements * 4);
  items_.push_back({home, std::move(parts), offset, nullptr, target});
}

std::vector<WeightStore::Job> WeightStore::jobs_of(int node_rank, int node_size) const {
  std::vector<Job> jobs;
  std::int64_t shared = 0;
  for (const Item& item : items_) {
    const std::int64_t units = item.matrix != nullptr ? item.matrix->num_panels() : 1;
    const std::int64_t unit_bytes =
        item.matrix != nullptr ? panel_bytes(item.matrix->format, item.matrix->depth) : 0;
    for (std::int64_t first = 0; first < units; first += kPanelsPerJob) {
      if (item.home == Home::node && shared++ % node_size != node_rank) continue;
      const std::int64_t end = std::min(units, first + kPanelsPerJob);
      jobs.push_back({&item, first, end, (end - first) * unit_bytes});
    }
  }
  return jobs;
}

void WeightStore::pack_panel(const Item& item, std::int64_t panel,
                             std::vector<float>& scratch) const {
  scratch.resize(static_cast<std::size_t>(kPanelColumns * item.matrix->depth));
  auto* const out = const_cast<std::byte*>(item.matrix->panel(panel));
  if (item.matrix->format == Format::bf16) {
    pack_rows(item.parts, panel, reinterpret_cast<BFloat16*>(scratch.data()),
              [&](std::span<const BFloat16* const> rows, std::int64_t depth) {
                bf16_format::pack_panel(rows, depth, reinterpret_cast<BFloat16*>(out));
              });
  } else {
    pack_rows(item.parts, panel, scratch.data(),
              [&](std::span<const float* const> rows, std::int64_t depth) {
                f32_format::pack_panel(rows, depth, reinterpret_cast<float*>(out));
              });
  }
}

void WeightStore::fill_vector(const Item& item) const {
  auto* out = const_cast<float*>(item.vector->data());
  for (const MatrixSource& part : item.parts) {
    const std::int64_t elements = part.rows() * part.cols();
    part.read_rows(0, part.rows(), std::span<float>(out, static_cast<std::size_t>(elements)));
    out += elements;
  }
}

WeightStore::Memory WeightStore::load(Communicator& node, ThreadPool& pool,
                                      const Progress& progress) {
  Memory memory;
  memory.node = node.allocate_shared(node_bytes_);
  memory.rank = ByteBuffer(static_cast<std::size_t>(rank_bytes_));
  for (const Item& item : items_) {
    std::byte* const base =
        (item.home == Home::node ? memory.node->bytes().data() : memory.rank.data()) + item.offset;
    if (item.matrix != nullptr) {
      item.matrix->panels = base;
    } else {
      std::int64_t elements = 0;
      for (const MatrixSource& part : item.parts) elements += part.rows() * part.cols();
      *item.vector = {reinterpret_cast<const float*>(base), static_cast<std::size_t>(elements)};
    }
  }

  const std::vector<Job> jobs = jobs_of(node.rank(), node.size());
  std::int64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  std::atomic<std::int64_t> done = 0;
  std::atomic<std::int64_t> read = 0;
  std::vector<std::vector<float>> scratch(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(static_cast<std::int64_t>(jobs.size()), [&](std::int64_t index, int worker) {
    const Job& job = jobs[static_cast<std::size_t>(index)];
    if (const std::int64_t ahead = index + 2 * pool.size(); ahead < std::ssize(jobs)) {
      jobs[static_cast<std::size_t>(ahead)].for_each_source(prefetch);
    }
    if (job.item->matrix == nullptr) {
      fill_vector(*job.item);
      return;
    }
    for (std::int64_t panel = job.first; panel < job.end; ++panel) {
      pack_panel(*job.item, panel, scratch[static_cast<std::size_t>(worker)]);
    }
    job.for_each_source([&](std::span<const std::byte> source) {
      read += std::ssize(source);
      release(source);  // packed: the mapping should not count as this rank's memory
    });
    done += job.bytes;
    if (worker == 0 && progress) progress(done, total);
  });
  if (progress) progress(total, total);
  memory.read_bytes = read;
  node.barrier();
  return memory;
}

}  // namespace moesaic
