#include "tests/gpu/row_checks.h"

#include <fmt/core.h>

#include <random>
#include <span>

#include "comm/nccl_ranks.h"
#include "comm/thread_communicator.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/cuda/nvfp4_rows.h"
#include "kernels/cuda/row_moves.h"
#include "kernels/cuda/row_rounding.h"
#include "kernels/kernel_table.h"
#include "kernels/nvfp4_activations.h"
#include "tests/gpu/device_case.h"

namespace moesaic {
namespace {

constexpr double kCheckSeconds = 300;

/// Vectors in device memory, while a check runs.
class Memory {
 public:
  explicit Memory(Device& device) : device_(device) {}

  template <typename T>
  CudaAddress put(const std::vector<T>& values) {
    buffers_.push_back(device_.allocate(std::ssize(values) * static_cast<std::int64_t>(sizeof(T))));
    device_.upload(buffers_.back().address(), values.data(), buffers_.back().bytes());
    return buffers_.back().address();
  }
  CudaAddress allocate(std::int64_t bytes) {
    buffers_.push_back(device_.allocate(bytes));
    return buffers_.back().address();
  }
  template <typename T>
  std::vector<T> get(CudaAddress from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device_.download(values.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
    device_.mark();
    device_.wait_for_mark(kCheckSeconds);
    return values;
  }

 private:
  Device& device_;
  std::vector<DeviceBuffer> buffers_;
};

std::vector<float> draw(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::int32_t> draw_indices(std::int64_t count, unsigned most) {
  std::mt19937 random(5);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
  for (std::int32_t& index : indices) index = static_cast<std::int32_t>(random() % most);
  return indices;
}

RowCheck check_gather(Device& device) {
  constexpr std::int64_t kColumns = 1036;  // no multiple of the threads' words
  constexpr std::int64_t kCount = 50;
  const std::vector<float> rows = draw(37 * kColumns, 1);
  const std::vector<std::int32_t> chosen = draw_indices(kCount, 37);
  RowCheck check{.kernels = "rows/gather", .what = "50 of 37 rows", .columns = kColumns};
  for (const std::int32_t row : chosen) {
    const auto first = rows.begin() + row * kColumns;
    check.wanted.insert(check.wanted.end(), first, first + kColumns);
  }
  Memory memory(device);
  const CudaAddress to = memory.allocate(kCount * kColumns * 4);
  DeviceRowMoves(device).gather({.from = memory.put(rows),
                                 .to = to,
                                 .rows = memory.put(chosen),
                                 .count = kCount,
                                 .row_bytes = kColumns * 4});
  check.got = memory.get<float>(to, kCount * kColumns);
  return check;
}

RowCheck check_combine(Device& device) {
  constexpr std::int64_t kColumns = 1036;
  constexpr std::int64_t kTokens = 19;
  constexpr std::int64_t kChoices = 3;
  const std::vector<float> results = draw(40 * kColumns, 2);
  const std::vector<float> weights = draw(kTokens * kChoices, 3);
  const std::vector<std::int32_t> places = draw_indices(kTokens * kChoices, 40);
  RowCheck check{.kernels = "rows/combine",
                 .what = "19 tokens, 3 results each",
                 .wanted = std::vector<float>(static_cast<std::size_t>(kTokens * kColumns)),
                 .columns = kColumns};
  for (std::int64_t choice = 0; choice < kTokens * kChoices; ++choice) {
    const auto at = static_cast<std::size_t>(choice);
    find_vector_kernels(Isa::scalar)
        .add_scaled(results.data() + places[at] * kColumns, weights[at], kColumns,
                    check.wanted.data() + choice / kChoices * kColumns);
  }
  Memory memory(device);
  const CudaAddress y = memory.allocate(kTokens * kColumns * 4);
  DeviceRowMoves(device).combine({.results = memory.put(results),
                                  .places = memory.put(places),
                                  .weights = memory.put(weights),
                                  .y = y,
                                  .tokens = kTokens,
                                  .topk = kChoices,
                                  .hidden = kColumns});
  check.got = memory.get<float>(y, kTokens * kColumns);
  return check;
}

/// Bytes of a row's records, as kernels/cuda/nvfp4_rows.h has them.
std::vector<std::uint8_t> records_of(const Nvfp4Row& row, std::int64_t bytes) {
  std::vector<std::uint8_t> records(static_cast<std::size_t>(bytes));
  constexpr std::size_t kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of eight k in a word
  for (std::size_t k = 0; k < row.codes.size(); ++k) {
    std::uint8_t* const record =
        records.data() + k / cuda::kRecordDepth * static_cast<std::size_t>(cuda::kRecordBytes);
    const std::size_t in = k % cuda::kRecordDepth;
    const std::size_t word = in / 8;
    const std::size_t nibble = word * 8 + kPlaces[k % 8];
    record[nibble / 2] |= static_cast<std::uint8_t>(row.codes[k] << (nibble % 2 * 4));
    record[cuda::kRecordCodeBytes + in / 16] = row.scales[k / 16];
  }
  return records;
}

/// Both forms of rows in nvfp4: bf16, and records with their scales behind them.
std::vector<RowCheck> check_rounding(Device& device) {
  constexpr std::int64_t kColumns = 1096;
  constexpr std::int64_t kCount = 7;
  const std::int64_t row_bytes = row_record_bytes(kColumns);
  const std::vector<float> values = draw(kCount * kColumns, 4);
  std::vector<BFloat16> rows;
  for (const float value : values) rows.push_back(to_bfloat16(value));
  RowCheck rounded{.kernels = "rows/round", .what = "7 rows to nvfp4", .columns = kColumns};
  RowCheck quantized{.kernels = "rows/quantize", .what = rounded.what, .columns = row_bytes + 1};
  for (std::int64_t row = 0; row < kCount; ++row) {
    const std::span<const BFloat16> own(rows.data() + row * kColumns, kColumns);
    std::vector<float> numbers;
    for (const BFloat16 value : own) numbers.push_back(to_float(value));
    round_to_nvfp4(numbers);
    rounded.wanted.insert(rounded.wanted.end(), numbers.begin(), numbers.end());
    const Nvfp4Row taken = quantize_row(own);
    for (const std::uint8_t byte : records_of(taken, row_bytes)) quantized.wanted.push_back(byte);
    quantized.wanted.push_back(taken.power);
  }
  Memory memory(device);
  const DeviceRowRounding::Rows from = {
      .from = memory.put(rows), .count = kCount, .depth = kColumns};
  const CudaAddress to = memory.allocate(kCount * kColumns * 2);
  const CudaAddress records = memory.allocate(kCount * row_bytes);
  const CudaAddress scales = memory.allocate(kCount * 4);
  DeviceRowRounding rounding(device);
  rounding.round(from, to);
  rounding.quantize(from, records, scales);
  for (const BFloat16 value : memory.get<BFloat16>(to, kCount * kColumns)) {
    rounded.got.push_back(to_float(value));
  }
  const auto bytes = memory.get<std::uint8_t>(records, kCount * row_bytes);
  const auto powers = memory.get<float>(scales, kCount);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    quantized.got.push_back(bytes[i]);
    const auto row = static_cast<std::int64_t>(i) / row_bytes;
    if (static_cast<std::int64_t>(i) % row_bytes == row_bytes - 1) {
      quantized.got.push_back(powers[static_cast<std::size_t>(row)]);
    }
  }
  return {rounded, quantized};
}

constexpr std::int64_t kMovedColumns = 12;

/// The rows that rank `from` sends to rank `to`.
std::vector<float> moved_rows(int from, int to) {
  std::vector<float> rows;
  if (from == to) return rows;
  const std::int64_t count = (from + 2 * to) % 3 + 1;
  for (std::int64_t i = 0; i < count * kMovedColumns; ++i) {
    rows.push_back(static_cast<float>(10000 * from + 1000 * to + i));
  }
  return rows;
}

/// All of them, by peer, and how many each has.
struct MovedRows {
  template <typename RowsOf>
  MovedRows(int peers, const RowsOf& rows_of) {
    for (int peer = 0; peer < peers; ++peer) {
      const std::vector<float> own = rows_of(peer);
      rows.insert(rows.end(), own.begin(), own.end());
      counts.push_back(std::ssize(own) / kMovedColumns);
    }
  }
  std::vector<float> rows;
  std::vector<std::int64_t> counts;
};

std::vector<float> exchange_rows(Communicator& world, Device& device,
                                 const std::shared_ptr<const NcclLibrary>& library) {
  const int self = world.rank();
  const MovedRows sent(world.size(), [&](int peer) { return moved_rows(self, peer); });
  const MovedRows wanted(world.size(), [&](int peer) { return moved_rows(peer, self); });
  const auto count = std::ssize(wanted.rows);
  Memory memory(device);
  const CudaAddress from = memory.put(sent.rows);
  const CudaAddress to = memory.allocate(count * 4);
  NcclRanks ranks(
      {.library = library, .ranks = world, .device = device, .deadline_seconds = kCheckSeconds});
  ranks.exchange({from, sent.counts}, {to, wanted.counts}, kMovedColumns * 4);
  std::vector<float> got(wanted.rows.size());
  device.download(got.data(), to, count * 4);
  device.mark();
  ranks.wait_for_mark();
  return got;
}

}  // namespace

std::vector<RowCheck> check_rows(Device& device) {
  std::vector<RowCheck> checks = check_rounding(device);
  checks.push_back(check_gather(device));
  checks.push_back(check_combine(device));
  return checks;
}

RowCheck check_nccl(const std::shared_ptr<const CudaDriver>& driver,
                    const std::shared_ptr<const NcclLibrary>& library) {
  const int num_gpus = driver->num_devices();
  RowCheck check{.kernels = "nccl/" + library->version_text(),
                 .what = fmt::format("rows between {} GPUs", num_gpus),
                 .columns = kMovedColumns};
  std::vector<std::vector<float>> got(static_cast<std::size_t>(num_gpus));
  run_thread_ranks(num_gpus, [&](Communicator& world) {
    Device device(driver, world.rank(), device_images());
    got[static_cast<std::size_t>(world.rank())] = exchange_rows(world, device, library);
  });
  for (int rank = 0; rank < num_gpus; ++rank) {
    const std::vector<float>& own = got[static_cast<std::size_t>(rank)];
    check.got.insert(check.got.end(), own.begin(), own.end());
    for (int peer = 0; peer < num_gpus; ++peer) {
      const std::vector<float> rows = moved_rows(peer, rank);
      check.wanted.insert(check.wanted.end(), rows.begin(), rows.end());
    }
  }
  return check;
}

}  // namespace moesaic
