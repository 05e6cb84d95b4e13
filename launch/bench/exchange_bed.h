#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "kernels/gemm_kernel.h"
#include "launch/bench/exchange_rivals.h"
#include "src/moe/int8_rows.h"
#include "src/moe/node_sums.h"
#include "src/moe/token_exchange.h"
#include "src/moe/wire_form.h"

namespace moesaic {

/// The exchange of an MoE layer with nothing between: token rows go to their experts and results
/// come back, all of known contents, so that every byte that arrives can be checked.
class ExchangeBed {
 public:
  /// Seconds of this rank's parts of an exchange.
  struct Times {
    double dispatch = 0;  // plan and rows, until all that this rank awaits are here
    double combine = 0;   // the same of results
  };

  /// What is exchanged; all of it outlives the bed.
  struct Case {
    const LayerShape& shape;
    const ExpertPlacement& placement;
    const LayerRouting& routing;  // of all ranks, each with as many tokens
    RowSource::Element element = RowSource::Element::bf16;  // of token rows that are not coded
    WireForm wire = WireForm::exact;
    /// Fast: as many rows as then travel; nothing is added.
    Combine combine = Combine::ordered;
    const ExpertNodes* nodes = nullptr;  // whose ranks would add theirs, or null
    std::optional<Int8Rows> codes{};     // token rows travel as these, not as `wire` has them
  };

  /// Collective.
  ExchangeBed(Communicator& experts, const Case& what);

  /// Writes rows and results that no earlier exchange had.
  void prepare();
  /// Rows there and results back. Collective.
  Times exchange();
  /// Bytes of the last exchange that are not what they should be, of rows that came and of results,
  /// own ones too.
  [[nodiscard]] std::int64_t count_wrong();

  /// What its exchanges have moved so far.
  [[nodiscard]] RowCounters moved() const;
  /// What travels: rows of this rank's tokens, results of its experts.
  [[nodiscard]] std::array<RowMatrix, 2> matrices() const;

  /// Bytes of what it moves, of token rows in bf16.
  [[nodiscard]] static ExchangeSizes sizes(const LayerShape& shape, WireForm wire, Combine combine);
  /// Bytes that such a bed and its rivals take on the rank that needs the most.
  [[nodiscard]] static std::int64_t bytes_needed(const ExchangeSizes& sizes,
                                                 const ExchangeLoads& loads, std::int64_t tokens);

 private:
  [[nodiscard]] MatrixView<std::byte> outputs() const {
    return {outputs_.data(), num_outputs_, result_bytes_};
  }
  void renew_rows();
  void write_result(std::uint32_t seed, std::byte* result) const;
  void write_row(std::uint32_t seed, std::byte* row) const;
  [[nodiscard]] std::int64_t activation_bytes() const noexcept;
  [[nodiscard]] std::int64_t token_of_source(std::int64_t source) const;
  [[nodiscard]] std::uint32_t seed(std::int64_t token, std::int32_t expert) const;
  [[nodiscard]] std::int64_t wrong_rows();
  [[nodiscard]] std::int32_t first_expert(std::span<const ExpertId> experts, int rank) const;
  [[nodiscard]] std::int32_t expert_of_result(std::int64_t choice) const;
  [[nodiscard]] std::int64_t wrong_results();
  [[nodiscard]] std::int64_t wrong_node_parts();
  void send_node_parts(const RowLabel& label);

  Case case_;
  Communicator& experts_;
  int rank_;
  std::int64_t hidden_;
  Routing own_;
  std::vector<std::int64_t> arrivals_;  // tokens, among all ranks' ones, whose rows come here
  std::uint32_t run_ = 0;
  WireRows rows_;
  WireCodec codec_;
  std::int64_t result_bytes_;
  SentRows<std::byte> outputs_;  // [outputs, result_bytes_]
  Buffer<float> node_outputs_;   // [outputs, hidden] the same in f32, where parts travel in a node
  std::int64_t num_outputs_ = 0;
  TokenExchange exchange_;
  ExchangePlan plan_;
  PendingDispatch dispatch_;
  NodeSums node_sums_;
  PendingResults results_;
};

}  // namespace moesaic
