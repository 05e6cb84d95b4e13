#include "launch/bench/onednn_rival.h"

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "launch/shapes/cold_weights.h"

// oneDNN's threads are OpenMP's. Declared here: <omp.h> belongs to a compiler, and it has to be the
// OpenMP that oneDNN is linked with.
extern "C" void omp_set_num_threads(int);

namespace moesaic {
namespace {

using dnnl::memory;

memory::data_type element_type(Format format) {
  return format == Format::int8 ? memory::data_type::s8 : memory::data_type::bf16;
}
memory::data_type result_type(Format format) {
  return format == Format::int8 ? memory::data_type::s32 : memory::data_type::f32;
}

dnnl::matmul::primitive_desc describe_product(const dnnl::engine& engine, const memory::desc& rows,
                                              const memory::desc& weights,
                                              const memory::desc& results) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, rows, weights, results};
#else
  return {dnnl::matmul::desc(rows, weights, results), engine};
#endif
}

}  // namespace

struct OneDnnRival::State {
  State(Format product_format, const MatrixShape& matrix_shape,
        std::span<const std::byte> plain_weights, std::span<std::byte> rotated)
      : format(product_format), shape(matrix_shape), plain(plain_weights), arena(rotated) {}

  void pack(const memory::desc& wanted);

  Format format;
  MatrixShape shape;
  std::span<const std::byte> plain;
  std::span<std::byte> arena;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::optional<memory::desc> packed;  // what the arena is filled with
  std::vector<memory> matrices;
  Rotation rotation;
  Buffer<std::byte> results;
  std::optional<dnnl::matmul> product;
  std::optional<memory> rows;
  std::optional<memory> output;
};

/// Fills the arena with copies of the weights in the layout that a product wants.
void OneDnnRival::State::pack(const memory::desc& wanted) {
  if (packed && *packed == wanted) return;
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t bytes = round_up(static_cast<std::int64_t>(wanted.get_size()), kAlignment);
  const std::int64_t count = std::ssize(arena) / bytes;
  require(count >= 1, ErrorKind::usage, "a matrix of {} does not fit into --footprint {}",
          format_bytes(bytes), format_bytes(std::ssize(arena)));
  const memory::desc given({shape.depth, shape.columns}, element_type(format),
                           memory::format_tag::ba);
  memory from(given, engine, const_cast<std::byte*>(plain.data()));
  matrices.clear();
  for (std::int64_t index = 0; index < count; ++index) {
    matrices.emplace_back(wanted, engine, arena.data() + index * bytes);
  }
  dnnl::reorder(from, matrices.front()).execute(stream, from, matrices.front());
  stream.wait();
  for (std::int64_t index = 1; index < count; ++index) {
    std::memcpy(arena.data() + index * bytes, arena.data(), static_cast<std::size_t>(bytes));
  }
  rotation = Rotation(matrices.size());
  packed = wanted;
}

bool OneDnnRival::is_built_in() noexcept {
  return true;
}

void OneDnnRival::require_built_in() {}

OneDnnRival::OneDnnRival(Format format, const MatrixShape& shape,
                         std::span<const std::byte> weights, std::span<std::byte> memory)
    : state_(std::make_unique<State>(format, shape, weights, memory)) {}

OneDnnRival::~OneDnnRival() = default;

void OneDnnRival::prepare(std::span<const std::byte> input, std::int64_t rows, int threads) {
  State& state = *state_;
  omp_set_num_threads(threads);
  const MatrixShape& shape = state.shape;
  const memory::desc row_desc({rows, shape.depth}, element_type(state.format),
                              memory::format_tag::ab);
  const memory::desc any_weights({shape.depth, shape.columns}, element_type(state.format),
                                 memory::format_tag::any);
  const memory::desc result_desc({rows, shape.columns}, result_type(state.format),
                                 memory::format_tag::ab);
  const auto description = describe_product(state.engine, row_desc, any_weights, result_desc);
  state.pack(description.weights_desc());
  state.product.emplace(description);
  state.results.reserve(rows * shape.columns * 4);
  state.rows.emplace(row_desc, state.engine, const_cast<std::byte*>(input.data()));
  state.output.emplace(result_desc, state.engine, state.results.data());
}

void OneDnnRival::run() {
  State& state = *state_;
  state.product->execute(state.stream, {{DNNL_ARG_SRC, *state.rows},
                                        {DNNL_ARG_WEIGHTS, state.matrices[state.rotation.next()]},
                                        {DNNL_ARG_DST, *state.output}});
  state.stream.wait();
}

const std::byte* OneDnnRival::output() const noexcept {
  return state_->results.data();
}

std::int64_t OneDnnRival::packed_bytes() const noexcept {
  return static_cast<std::int64_t>(state_->packed->get_size());
}

}  // namespace moesaic
