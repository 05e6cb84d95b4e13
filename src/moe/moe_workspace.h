#pragma once

#include <cstdint>
#include <vector>

#include "src/lora/part_backward.h"
#include "src/moe/choice_batch.h"
#include "src/moe/deferral.h"
#include "src/moe/moe_context.h"
#include "src/moe/moe_stash.h"
#include "src/moe/router.h"
#include "src/moe/row_coder.h"
#include "src/moe/slot_queue.h"
#include "src/parallel/expert_record.h"

namespace moesaic {

/// Rows of work that this rank's experts did.
struct ExpertLoad {
  std::int64_t rows = 0;                // outputs computed here
  std::int64_t rows_sent = 0;           // token rows that left for other ranks
  std::int64_t bytes_sent = 0;          // token rows and results that left for other ranks
  std::int64_t results_saved = 0;       // that did not go home: added to others in this node
  std::int64_t result_bytes_saved = 0;  // of these

  ExpertLoad& operator+=(const ExpertLoad& more) noexcept {
    rows += more.rows;
    rows_sent += more.rows_sent;
    bytes_sent += more.bytes_sent;
    results_saved += more.results_saved;
    result_bytes_saved += more.result_bytes_saved;
    return *this;
  }
};

/// One batch on its way through an MoE layer: its plan, rows and results. One after the other the
/// layers of a model use the same; batches that are under way at the same time have one each. As a
/// ChoiceBatch it has the choices that the layer's own sum takes: all that are not deferred.
struct MoeWorkspace : ChoiceBatch {
  /// `hidden_bytes`: of one row's activations.
  MoeWorkspace(const MoeContext& model, std::int64_t hidden_bytes, std::int64_t topk)
      : ChoiceBatch(model.experts),
        context(model),
        rows(model.experts.make_row_memory(), hidden_bytes, topk),
        exchange(model.experts, model.placement.of_layer(0), model.options.combine, model.nodes),
        deferral(model.experts, hidden_bytes, topk),
        gradient_rows(model.experts.make_row_memory(), hidden_bytes, topk, true) {}

  /// The batch is in this layer of the model now, or in none (-1).
  void enter_layer(std::int64_t layer) {
    label.layer = static_cast<std::int32_t>(layer);
    if (layer >= 0) exchange.place(context.placement.of_layer(layer));
  }

  /// Set before begin(), or null: what is kept for a backward pass, and where choices are counted.
  MoeStash* keep = nullptr;
  bool keeps_alone = false;  // set before begin(): the results are not wanted
  Dropout dropout{};         // set before begin() and begin_backward(): of the tokens
  /// Set before begin(), or null: the choices of all tokens, which are taken in the place of the
  /// router's; none: those go there.
  std::vector<ExpertId>* choices = nullptr;
  RouterStatistics* statistics = nullptr;
  RowLabel label{};        // step and layer of the batch, for its exchanges
  ExpertRows expert_rows;  // choices so far, by the layers of labels
  /// Set before begin(): choices of each token that the sum of the next layer takes, which must be
  /// given the same tokens. Not with `keep`.
  std::int64_t defer = 0;

  MoeContext context;
  RouterScratch router_scratch;
  WireRows rows;
  TokenExchange exchange;
  PendingDispatch dispatch;
  SlotQueue slots;                    // that wait for their rows
  RowForm row_form = RowForm::plain;  // of the rows under way
  DecodedRows decoded;                // where it is not plain
  bool has_executed = false;
  bool is_on_road = false;
  Deferral deferral;
  ExpertLoad load;

  // Of backward passes alone.
  WireRows gradient_rows;
  std::vector<const std::byte*> gradient_output_rows;  // [outputs]
  std::vector<float> row_weights;                      // [outputs]
  std::vector<float> weight_gradients;                 // [outputs], then [choices]
  std::vector<SampleRange> samples;                    // of outputs
};

}  // namespace moesaic
