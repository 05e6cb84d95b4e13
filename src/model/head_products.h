#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "src/lora/adapter_products.h"
#include "src/model/attention_run.h"

namespace moesaic {

/// A weight of which every head has rows of its own, and the adapter of the module that these rows
/// are part of.
struct HeadMatrix {
  PackedMatrix all;                  ///< [heads * rows, inputs], a head's rows below the other's
  std::int64_t rows = 0;             ///< of a head, a multiple of kPanelColumns
  const Adapter* adapter = nullptr;  ///< or null; its rows are those of a head, then of the next
  std::int64_t module_rows = 0;      ///< of a head in the module
  std::int64_t first_row = 0;        ///< of them: the first that is here
};

/// Heads [first, first + count) of the model, each with so many rows of what it multiplies. Row r
/// of head first + i is row i * rows + r of matrices that have those of all these heads.
struct HeadRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t rows = 0;

  [[nodiscard]] std::int64_t all_rows() const noexcept { return count * rows; }
};

/// Products of each head's rows with its rows of a matrix, and with those of an adapter. Keeps its
/// scratch memory between calls.
class HeadProducts {
 public:
  /// Both must outlive this.
  HeadProducts(GroupedGemm& gemm, AdapterProducts& adapters) : gemm_(gemm), adapters_(adapters) {}

  /// y [all_rows, rows of a head] = x W^T; x has `inputs` numbers of every row and of the heads in
  /// their order.
  void forward(const HeadMatrix& matrix, const HeadRange& heads, HeadRows<const float> x,
               MatrixView<float> y);
  /// x [all_rows, inputs] = y W.
  void transposed(const HeadMatrix& matrix, const HeadRange& heads, HeadRows<const float> y,
                  MatrixView<float> x);
  /// A backward pass: one of x and y is what the product got, the other the gradient of what it
  /// gave.
  struct Backward {
    HeadRows<const float> x;
    HeadRows<const float> y;
    MatrixView<float> gradient;            ///< of what it got, overwritten
    std::span<const SampleRange> samples;  ///< rows of one head
  };
  /// Through forward(), to x. Adds the gradients of the adapter, if there is one: of each head and
  /// sample one chain for A, and one for the head's rows of B.
  void backward(const HeadMatrix& matrix, const HeadRange& heads, const Backward& pass,
                AdapterGradients& gradients);
  /// Through transposed(), to y, the same way.
  void transposed_backward(const HeadMatrix& matrix, const HeadRange& heads, const Backward& pass,
                           AdapterGradients& gradients);

 private:
  /// Groups, and parts of the adapter.
  void set(const HeadMatrix& matrix, const HeadRange& heads);
  [[nodiscard]] MatrixView<float> inner_rows(const HeadMatrix& matrix, const HeadRange& heads,
                                             Buffer<float>& buffer);
  /// Of the heads of set().
  [[nodiscard]] AdapterGradientInput gradient_input(const HeadMatrix& matrix,
                                                    const HeadRange& heads, const Backward& pass);

  GroupedGemm& gemm_;
  AdapterProducts& adapters_;
  std::vector<GemmGroup> groups_;         // [heads]
  std::vector<Adapter> parts_;            // [heads] of the adapter
  std::vector<AdapterRows> adapted_;      // [heads]
  std::vector<const std::byte*> x_rows_;  // [all_rows]
  std::vector<const std::byte*> y_rows_;  // [all_rows]
  std::vector<SampleRange> samples_;      // of each head
  Buffer<float> inner_;                   // [all_rows, rank] scale x A^T
  Buffer<float> back_;                    // [all_rows, rank] scale y B
};

}  // namespace moesaic
