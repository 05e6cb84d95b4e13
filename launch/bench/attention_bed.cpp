#include "launch/bench/attention_bed.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"
#include "base/rounding.h"
#include "base/split.h"
#include "kernels/kernel_table.h"
#include "launch/shapes/cold_weights.h"

namespace moesaic {
namespace {

struct Model {
  std::string_view name;
  AttentionForm form;
};
constexpr std::array kModels = {Model{"qwen3-30b", {32, 4, 128}}, Model{"mixtral", {32, 8, 128}},
                                Model{"granite", {16, 8, 64}}};

/// Positions after which keys and values repeat themselves.
constexpr std::int64_t kPeriod = 4096;

AttentionForm parse_form(std::string_view item) {
  const auto* model = std::ranges::find(kModels, item, &Model::name);
  if (model != kModels.end()) return model->form;
  std::array<std::int64_t, 3> numbers{};
  const auto parts = split(item, 'x');
  bool valid = parts.size() == numbers.size();
  for (std::size_t i = 0; valid && i < numbers.size(); ++i) {
    const char* const end = parts[i].data() + parts[i].size();
    const auto [stop, error] = std::from_chars(parts[i].data(), end, numbers[i]);
    valid = error == std::errc() && stop == end && numbers[i] >= 1 && numbers[i] <= 4096;
  }
  valid = valid && numbers[0] % numbers[1] == 0 && numbers[2] % 2 == 0;
  require(valid, ErrorKind::usage,
          "--shapes: \"{}\" is neither QxKVxD, such as 32x4x128 (query heads, a multiple of the KV "
          "heads; D even), nor one of qwen3-30b, mixtral, granite",
          item);
  return {numbers[0], numbers[1], numbers[2]};
}

/// Element d of a position, as the cache keeps it.
float kept(AttentionKind kind, float x) {
  return kind == AttentionKind::bf16 ? to_float(to_bfloat16(x)) : x;
}

/// Deterministic and about normal: vectors of head_dim, one a position and kind of vector.
std::vector<float> vector_of(std::int64_t position, std::int64_t head_dim, std::uint64_t what) {
  return normal_numbers(head_dim, 1, static_cast<std::uint64_t>(position % kPeriod) * 4 + what);
}
constexpr std::uint64_t kKey = 1;
constexpr std::uint64_t kValue = 2;
constexpr std::uint64_t kQuery = 3;

}  // namespace

std::string AttentionForm::name() const {
  return fmt::format("{}x{}x{}", heads, kv_heads, head_dim);
}

std::vector<AttentionForm> parse_attention_shapes(std::string_view list) {
  std::vector<AttentionForm> forms;
  for (const std::string_view item : split_list(list)) {
    if (item != "deepseek-v3") forms.push_back(parse_form(item));
  }
  require(!forms.empty(), ErrorKind::usage, "--shapes: deepseek-v3 has attention of another kind");
  return forms;
}

AttentionBed::AttentionBed(const AttentionForm& form, AttentionKind kind, std::int64_t num_keys,
                           std::span<std::byte> memory)
    : form_(form), kind_(kind), num_keys_(num_keys) {
  require(copy_bytes() <= std::ssize(memory), ErrorKind::usage,
          "--footprint: {} keys of {} take {} bytes, more than the {} there are", num_keys,
          form.name(), copy_bytes(), memory.size());
  fill(memory);
}

std::int64_t AttentionBed::copy_bytes(const AttentionForm& form, AttentionKind kind,
                                      std::int64_t num_keys) {
  return form.kv_heads * divide_up(num_keys, kKeysPerBlock) *
         (key_block_bytes(kind, form.head_dim) + value_block_bytes(kind, form.head_dim));
}

void AttentionBed::fill(std::span<std::byte> memory) {
  const std::int64_t key_bytes = key_block_bytes(kind_, form_.head_dim);
  const std::int64_t block_bytes = key_bytes + value_block_bytes(kind_, form_.head_dim);
  const std::int64_t heads = std::ssize(memory) / copy_bytes() * form_.kv_heads;
  for (std::int64_t position = 0; position < std::min(num_keys_, kPeriod); ++position) {
    std::byte* const block = memory.data() + position / kKeysPerBlock * block_bytes;
    const VectorKernels& vector = find_vector_kernels(Isa::scalar);
    store_key(kind_, vector, vector_of(position, form_.head_dim, kKey).data(), form_.head_dim,
              {block, position % kKeysPerBlock});
    store_value(kind_, vector, vector_of(position, form_.head_dim, kValue).data(), form_.head_dim,
                {block + key_bytes, position % kKeysPerBlock});
  }
  const std::int64_t blocks = divide_up(num_keys_, kKeysPerBlock);
  for (std::int64_t b = 0; b < heads * blocks; ++b) {  // all heads have the same keys and values
    std::byte* const to = memory.data() + b * block_bytes;
    const std::byte* const from =
        memory.data() + b % blocks % (kPeriod / kKeysPerBlock) * block_bytes;
    if (to != from) std::memcpy(to, from, static_cast<std::size_t>(block_bytes));
    key_blocks_.push_back(to);
    value_blocks_.push_back(to + key_bytes);
  }
}

std::int64_t AttentionBed::row_offset(std::int64_t kv_head, std::int64_t row) const {
  return (kv_head * rows_ + row) * group() * form_.head_dim;
}

double AttentionBed::operations(std::int64_t rows) const {
  const auto last = static_cast<double>(num_keys_);
  const auto count = static_cast<double>(rows);
  const double seen = count * last - count * (count - 1) / 2;
  return 4 * seen * static_cast<double>(form_.heads * form_.head_dim);
}

AttentionArgs AttentionBed::args(const AttentionTask& task, Scratch& scratch) {
  scratch.first_keys.clear();
  scratch.end_keys.clear();
  for (std::int64_t i = 0; i < task.rows.count * group(); ++i) {
    const std::int64_t end = num_keys_ - rows_ + task.rows.first + i / group() + 1;
    scratch.first_keys.push_back(task.first_key());
    scratch.end_keys.push_back(std::min(end, task.end_key()));
  }
  const std::int64_t per_head = divide_up(num_keys_, kKeysPerBlock);
  const auto first_block =
      static_cast<std::size_t>((copy_ * form_.kv_heads + task.rows.kv_head) * per_head);
  const std::int64_t offset = row_offset(task.rows.kv_head, task.rows.first);
  return {.queries = queries_.data() + offset,
          .query_stride = form_.head_dim,
          .num_rows = task.rows.count * group(),
          .head_dim = form_.head_dim,
          .value_dim = form_.head_dim,
          .first_keys = scratch.first_keys.data(),
          .end_keys = scratch.end_keys.data(),
          .key_blocks = key_blocks_.data() + first_block,
          .value_blocks = value_blocks_.data() + first_block,
          .scale = 1 / std::sqrt(static_cast<float>(form_.head_dim)),
          .scratch = scratch.kernel.data(),
          .out = out_.data() + offset,
          .out_stride = form_.head_dim,
          .states = task.is_whole() ? nullptr : states_.data() + task.states};
}

void AttentionBed::run(const AttentionKernel& kernel, std::int64_t rows, ThreadPool& pool) {
  if (rows != rows_) {
    rows_ = rows;
    queries_ = normal_numbers(rows * form_.heads * form_.head_dim, 1, kQuery);
    out_.assign(queries_.size(), 0);
  }
  while (std::ssize(scratch_) < pool.size()) {
    scratch_.push_back({.kernel = ByteBuffer(static_cast<std::size_t>(
                            attention_scratch_bytes(form_.head_dim, form_.head_dim))),
                        .first_keys = {},
                        .end_keys = {}});
  }
  const std::int64_t per_copy = form_.kv_heads * divide_up(num_keys_, kKeysPerBlock);
  copy_ = (copy_ + 1) % (std::ssize(key_blocks_) / per_copy);
  const AttentionSpan span{.position = num_keys_ - rows, .num_tokens = rows};
  plan_.cut({&span, 1}, {.kv_heads = form_.kv_heads, .group = group(), .value_dim = form_.head_dim},
            pool.size());
  states_.reserve(plan_.state_floats());
  pool.parallel_for(std::ssize(plan_.tasks()), [&](std::int64_t index, int worker) {
    kernel.attend(args(plan_.tasks()[static_cast<std::size_t>(index)],
                       scratch_[static_cast<std::size_t>(worker)]));
  });
  if (plan_.joins().empty()) return;
  pool.parallel_for(std::ssize(plan_.joins()), [&](std::int64_t index, int) {
    const AttentionJoin& join = plan_.joins()[static_cast<std::size_t>(index)];
    kernel.merge({.states = states_.data() + join.states,
                  .num_segments = join.num_segments,
                  .segment_stride = join.segment_stride,
                  .num_rows = join.rows.count * group(),
                  .value_dim = form_.head_dim,
                  .out = out_.data() + row_offset(join.rows.kv_head, join.rows.first),
                  .out_stride = form_.head_dim});
  });
}

std::vector<double> AttentionBed::exact_row(std::int64_t row, std::int64_t head) const {
  const std::int64_t dim = form_.head_dim;
  const float* query = queries_.data() + row_offset(head / group(), row) + head % group() * dim;
  std::vector<double> sums(static_cast<std::size_t>(dim));
  double total = 0;
  for (std::int64_t key = 0; key <= num_keys_ - rows_ + row; ++key) {
    const std::vector<float> k = vector_of(key, dim, kKey);
    double score = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      score += static_cast<double>(query[d]) * kept(kind_, k[static_cast<std::size_t>(d)]);
    }
    const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
    total += weight;
    const std::vector<float> v = vector_of(key, dim, kValue);
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * kept(kind_, v[d]);
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

double AttentionBed::error() const {
  double difference = 0;
  double magnitude = 0;
  for (const std::int64_t row : {std::int64_t{0}, rows_ - 1}) {
    const std::int64_t head = row % form_.heads;
    const std::vector<double> exact = exact_row(row, head);
    const float* out =
        out_.data() + row_offset(head / group(), row) + head % group() * form_.head_dim;
    for (std::size_t d = 0; d < exact.size(); ++d) {
      difference += std::abs(static_cast<double>(out[d]) - exact[d]);
      magnitude += std::abs(exact[d]);
    }
  }
  return difference / magnitude;
}

}  // namespace moesaic
