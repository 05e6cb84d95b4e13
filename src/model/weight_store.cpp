#include "src/model/weight_store.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "src/checkpoint/mapped_file.h"

namespace moesaic {
namespace {

/// Items start on huge-page friendly boundaries of cache lines.
constexpr std::int64_t kAlignment = 256;
/// Item::offset of what is used where it is mapped.
constexpr std::int64_t kMapped = -1;
/// Bytes that one job copies, unless a checksum needs all of an item.
constexpr std::int64_t kCopyBytes = std::int64_t{8} << 20;

std::int64_t num_elements(const PlannedWeight& weight) {
  if (weight.stored != nullptr) return weight.stored->rows * weight.stored->depth;
  std::int64_t elements = 0;
  for (const MatrixSource& part : weight.parts) elements += part.rows() * part.cols();
  return elements;
}

/// Whether quantising finds out PackedMatrix::scale, in the one job that such a matrix is.
bool finds_scale(const PlannedWeight& weight) {
  return weight.matrix != nullptr && weight.stored == nullptr && !weight.packing.keeps_codes &&
         weight.packing.layout.format == Format::nvfp4;
}

/// All but the embedding have one.
bool has_target(const PlannedWeight& weight) {
  return weight.matrix != nullptr || weight.vector != nullptr;
}

std::int64_t bytes_on_disk(const PlannedWeight& weight) {
  if (weight.stored != nullptr) return weight.stored->bytes;
  std::int64_t bytes = 0;
  for (const MatrixSource& part : weight.parts) {
    part.for_each_bytes(0, part.rows(),
                        [&](std::span<const std::byte> mapped) { bytes += std::ssize(mapped); });
  }
  return bytes;
}

void take_input_scale(const PlannedWeight& weight, PackedMatrix& matrix) {
  if (weight.input_scale == 0) return;
  matrix.input_scale = weight.input_scale;
  matrix.scale *= weight.input_scale;
}

/// Fills in all of a matrix that is known before its bytes are; returns how many bytes a weight
/// has.
std::int64_t describe(const PlannedWeight& weight) {
  if (!has_target(weight)) return bytes_on_disk(weight);
  if (weight.matrix == nullptr) {
    return weight.stored != nullptr ? weight.stored->bytes : num_elements(weight) * 4;
  }
  PackedMatrix& target = *weight.matrix;
  if (const PackedEntry* entry = weight.stored) {
    target = {
        .layout = entry->layout, .rows = entry->rows, .depth = entry->depth, .scale = entry->scale};
    take_input_scale(weight, target);
    return entry->bytes;
  }
  const MatrixPacker packer(weight.packing, weight.parts);
  target = {.layout = weight.packing.layout,
            .rows = packer.rows(),
            .depth = packer.depth(),
            .scale = packer.scale()};
  take_input_scale(weight, target);
  return target.bytes() + std::ssize(std::as_bytes(packer.order()));
}

/// Most bytes of files that a job of the weight maps, and the scratch of the thread that runs it.
std::int64_t job_bytes(const PlannedWeight& weight, const StoredWeights& stored) {
  if (weight.stored != nullptr) {
    return stored.verify ? weight.stored->bytes : std::min(weight.stored->bytes, kCopyBytes);
  }
  if (weight.matrix == nullptr) return 0;
  const MatrixPacker packer(weight.packing, weight.parts);
  const auto mapped = [&](std::int64_t first) {
    std::int64_t bytes = 0;
    packer.for_each_source(first, std::min(first + packer.panels_together(), packer.num_panels()),
                           [&](std::span<const std::byte> source) { bytes += std::ssize(source); });
    return bytes;
  };
  const std::int64_t last = (packer.num_panels() - 1) / packer.panels_together();
  constexpr std::int64_t kScratch = sizeof(float) + 1;  // of a value of PackScratch, and its code
  return std::max(mapped(0), mapped(last * packer.panels_together())) +
         kPanelColumns * packer.depth() * kScratch;
}

}  // namespace

/// Units [first, end) of an item: panels to pack, bytes to copy, or a whole vector.
struct WeightStore::Job {
  const Item* item;
  std::int64_t first;
  std::int64_t end;
  std::int64_t bytes;  // written

  [[nodiscard]] const PlannedWeight& weight() const { return item->weight; }

  /// call(bytes) for the mapped bytes of the files that this job reads.
  template <typename Call>
  void for_each_source(const ModelFiles& files, const Call& call) const {
    if (weight().stored != nullptr) {
      call(files.packed()
               ->bytes(*weight().stored)
               .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)));
    } else if (weight().matrix != nullptr) {
      MatrixPacker(weight().packing, weight().parts).for_each_source(first, end, call);
    }
  }
};

/// What one thread works with.
struct WeightStore::Worker {
  WeightSink* device = nullptr;
  PackScratch scratch{};
  Buffer<std::byte> panels{};  // on their way to the device
};

WeightStore::WeightStore(const ModelFiles& files, std::vector<PlannedWeight> weights,
                         const StoredWeights& stored)
    : files_(files), stored_(stored) {
  require(files.packed() != nullptr || !(stored.map || stored.verify), ErrorKind::usage,
          "{}: weights of a checkpoint are packed when they are loaded, so that there are no "
          "packed ones to {}; moesaic convert writes some",
          files.directory(), stored.map ? "map" : "verify");
  for (PlannedWeight& weight : weights) add(std::move(weight));
}

void WeightStore::add(PlannedWeight planned) {
  Item item{.weight = std::move(planned), .bytes = 0, .offset = kMapped};
  const PlannedWeight& weight = item.weight;
  item.bytes = describe(weight);
  if (weight.matrix != nullptr) {
    auto& formats = weight.role == WeightRole::expert ? bytes_.experts : bytes_.others;
    formats[static_cast<std::size_t>(weight.packing.layout.format)] += item.bytes;
  }
  const bool for_device = weight.home == WeightHome::device;
  require(!for_device || item.bytes == weight.matrix->bytes(), ErrorKind::usage,
          "weight \"{}\" cannot be on a GPU: its columns have an order of their own (act-order)",
          weight.name);
  if ((stored_.map && !for_device) || !has_target(weight)) {
    (has_target(weight) ? bytes_.mapped_bytes : bytes_.embedding_bytes) += item.bytes;
  } else {
    std::int64_t& total = for_device                        ? bytes_.device_bytes
                          : weight.home == WeightHome::node ? bytes_.node_bytes
                                                            : bytes_.rank_bytes;
    item.offset = std::exchange(total, total + round_up(item.bytes, kAlignment));
  }
  if (has_target(weight)) bytes_.job_bytes = std::max(bytes_.job_bytes, job_bytes(weight, stored_));
  items_.push_back(std::move(item));
}

void WeightStore::for_each_expert(
    const std::function<void(const PlannedWeight& weight, std::int64_t bytes)>& call) const {
  for (const Item& item : items_) {
    const bool is_matrix = item.weight.matrix != nullptr;
    if (is_matrix && item.weight.role == WeightRole::expert) call(item.weight, item.bytes);
  }
}

/// Points the item's target to where its bytes are or will be.
void WeightStore::place(const Item& item, const Memory& memory) const {
  const PlannedWeight& weight = item.weight;
  if (!has_target(weight)) return;
  const std::byte* begin = nullptr;
  if (item.offset == kMapped) {
    const std::span<const std::byte> bytes = files_.packed()->bytes(*weight.stored);
    prefetch(bytes);
    begin = bytes.data();
  } else {
    begin = memory.device;
    if (weight.home == WeightHome::node) begin = memory.node->bytes().data();
    if (weight.home == WeightHome::rank) begin = memory.rank.data();
    begin += item.offset;
  }
  if (weight.vector != nullptr) {
    *weight.vector = {reinterpret_cast<const float*>(begin),
                      static_cast<std::size_t>(num_elements(weight))};
    return;
  }
  weight.matrix->panels = begin;
  const std::int64_t order = weight.matrix->bytes();
  if (order < item.bytes) {
    weight.matrix->order = reinterpret_cast<const std::int32_t*>(begin + order);
  }
}

std::vector<WeightStore::Job> WeightStore::jobs_of(int node_rank, int node_size) const {
  std::vector<Job> jobs;
  std::int64_t shared = 0;
  for (const Item& item : items_) {
    const PlannedWeight& weight = item.weight;
    if (item.offset == kMapped && (weight.stored == nullptr || !stored_.verify)) continue;
    std::int64_t units = 1;
    std::int64_t step = 1;
    std::int64_t unit_bytes = item.bytes;
    if (weight.stored != nullptr) {
      units = item.bytes;
      step = stored_.verify ? units : kCopyBytes;
      unit_bytes = 1;
    } else if (weight.matrix != nullptr) {
      units = weight.matrix->num_panels();
      step = MatrixPacker(weight.packing, weight.parts).panels_together();
      unit_bytes = weight.matrix->panel_stride();
    }
    for (std::int64_t first = 0; first < units; first += step) {
      if (weight.home == WeightHome::node && shared++ % node_size != node_rank) continue;
      const std::int64_t end = std::min(units, first + step);
      jobs.push_back({&item, first, end, (end - first) * unit_bytes});
    }
  }
  return jobs;
}

void WeightStore::run(const Job& job, Worker& worker) const {
  if (job.weight().stored != nullptr) {
    copy(job, worker);
  } else if (job.weight().matrix != nullptr) {
    pack(job, worker);
  } else {
    fill_vector(*job.item);
  }
}

void WeightStore::pack(const Job& job, Worker& worker) const {
  PackedMatrix& matrix = *job.weight().matrix;
  MatrixPacker packer(job.weight().packing, job.weight().parts);
  const bool for_device = job.weight().home == WeightHome::device;
  if (for_device) worker.panels.reserve(job.bytes);
  std::byte* const panels =
      for_device ? worker.panels.data() : const_cast<std::byte*>(matrix.panel(job.first));
  naming_weight(job.weight().name, [&] {
    if (packer.must_measure()) packer.measure(job.first, job.end, worker.scratch);
    packer.pack(job.first, job.end, panels, worker.scratch);
  });
  if (for_device) {
    worker.device->write(matrix.panel(job.first), {panels, static_cast<std::size_t>(job.bytes)});
  }
  if (job.first > 0) return;
  if (finds_scale(job.weight())) {
    matrix.scale = packer.scale();
    take_input_scale(job.weight(), matrix);
  }
  const auto order = std::as_bytes(packer.order());
  std::ranges::copy(order, const_cast<std::byte*>(matrix.panels) + matrix.bytes());
}

void WeightStore::fill_vector(const Item& item) const {
  auto* out = const_cast<float*>(item.weight.vector->data());
  for (const MatrixSource& part : item.weight.parts) {
    const std::int64_t elements = part.rows() * part.cols();
    part.read_rows(0, part.rows(), std::span<float>(out, static_cast<std::size_t>(elements)));
    out += elements;
  }
}

/// Copies stored bytes, if they are not used where they are, and checks what is to be checked.
void WeightStore::copy(const Job& job, const Worker& worker) const {
  const PlannedWeight& weight = job.weight();
  std::span<const std::byte> bytes;
  job.for_each_source(files_, [&](std::span<const std::byte> source) { bytes = source; });
  if (weight.home == WeightHome::device) {
    worker.device->write(weight.matrix->panels + job.first, bytes);
  } else if (job.item->offset != kMapped) {
    const auto* begin = weight.matrix != nullptr
                            ? weight.matrix->panels
                            : reinterpret_cast<const std::byte*>(weight.vector->data());
    auto* const copied = const_cast<std::byte*>(begin) + job.first;
    std::memcpy(copied, bytes.data(), bytes.size());
    bytes = {copied, bytes.size()};
  }
  if (stored_.verify) files_.packed()->verify(*weight.stored, bytes);
}

/// Scales that one rank of the node found out reach the others.
void WeightStore::share_scales(Communicator& node, const std::vector<Job>& jobs) const {
  std::vector<PackedMatrix*> matrices;  // the same on all ranks
  std::unordered_map<const PackedMatrix*, std::size_t> places;
  for (const Item& item : items_) {
    const PlannedWeight& weight = item.weight;
    if (weight.home != WeightHome::node || !finds_scale(weight)) continue;
    places.emplace(weight.matrix, matrices.size());
    matrices.push_back(weight.matrix);
  }
  if (matrices.empty()) return;
  std::vector<std::int64_t> bits(matrices.size());  // zero from all ranks but one
  for (const Job& job : jobs) {
    const auto found = places.find(job.weight().matrix);
    if (found == places.end()) continue;
    bits[found->second] = std::bit_cast<std::int32_t>(job.weight().matrix->scale);
  }
  node.sum(std::span<std::int64_t>(bits));
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    matrices[i]->scale = std::bit_cast<float>(narrow<std::int32_t>(bits[i]));
  }
}

/// A column beyond the end would be read there.
void WeightStore::check_order(const Item& item) const {
  if (item.weight.matrix == nullptr || item.weight.matrix->order == nullptr) return;
  const PackedMatrix& matrix = *item.weight.matrix;
  const std::span order(matrix.order, static_cast<std::size_t>(matrix.depth));
  require(std::ranges::all_of(order, [&](std::int32_t k) { return k >= 0 && k < matrix.depth; }),
          ErrorKind::file, "{}: weight \"{}\" has an order of columns that it does not have",
          files_.directory(), item.weight.name);
}

/// Pages of files that are not used where they are mapped.
void WeightStore::release_pages() const noexcept {
  if (!stored_.map) files_.release_pages();
}

/// Fills `memory`, and waits until all ranks have.
void WeightStore::run_all(const std::vector<Job>& jobs, const Team& team, const Progress& progress,
                          Memory& memory) const {
  std::int64_t total = 0;
  for (const Job& job : jobs) total += job.bytes;
  std::atomic<std::int64_t> done = 0;
  std::atomic<std::int64_t> read = 0;
  std::vector<Worker> workers(static_cast<std::size_t>(team.pool.size()));
  for (Worker& worker : workers) worker.device = team.device;
  team.pool.parallel_for(std::ssize(jobs), [&](std::int64_t index, int worker) {
    const Job& job = jobs[static_cast<std::size_t>(index)];
    if (const std::int64_t ahead = index + 2 * team.pool.size(); ahead < std::ssize(jobs)) {
      jobs[static_cast<std::size_t>(ahead)].for_each_source(files_, prefetch);
    }
    reading(files_, [&] { run(job, workers[static_cast<std::size_t>(worker)]); });
    job.for_each_source(files_, [&](std::span<const std::byte> source) {
      read += std::ssize(source);
      release(source);  // the mapping should not count as this rank's memory
    });
    done += job.bytes;
    if (worker != 0) return;
    team.work.advance(done, total);
    if (progress) progress(done, total);
  });
  if (progress) progress(total, total);
  release_pages();
  memory.read_bytes = read;
  team.work.finish();
}

WeightStore::Memory WeightStore::load(const Team& team, const Progress& progress) {
  Memory memory;
  if (bytes_.node_bytes > 0) memory.node = team.node.allocate_shared(bytes_.node_bytes);
  memory.rank = ByteBuffer(static_cast<std::size_t>(bytes_.rank_bytes));
  if (bytes_.device_bytes > 0) memory.device = team.device->allocate(bytes_.device_bytes);
  for (const Item& item : items_) place(item, memory);

  const std::vector<Job> jobs = jobs_of(team.node.rank(), team.node.size());
  run_all(jobs, team, progress, memory);
  share_scales(team.node, jobs);
  team.node.barrier();
  reading(files_, [&] {
    for (const Item& item : items_) check_order(item);
  });
  return memory;
}

}  // namespace moesaic
