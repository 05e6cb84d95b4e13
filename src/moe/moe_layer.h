#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "src/lora/part_backward.h"
#include "src/moe/deferral.h"
#include "src/moe/experts.h"
#include "src/moe/int8_rows.h"
#include "src/moe/moe_options.h"
#include "src/moe/moe_stash.h"
#include "src/moe/router.h"
#include "src/moe/slot_queue.h"
#include "src/moe/wire_form.h"
#include "src/parallel/expert_record.h"
#include "src/parallel/phase_times.h"

namespace moesaic {

class DeviceRoad;

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

/// What the MoE layers of one model share; all of it outlives them.
struct MoeContext {
  Communicator& experts;  // the expert-parallel group
  const ModelPlacement& placement;
  GroupedGemm& gemm;
  TransposedGemm& transposed;
  PhaseTimes& times;
  MoeOptions options{};
  const ExpertNodes* nodes = nullptr;  // whose ranks add theirs, with Combine::fast, or null
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

  /// Whether each rank adds its results of a token.
  [[nodiscard]] bool adds_parts() const noexcept {
    return context.options.combine == Combine::fast;
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
  SlotQueue slots;  // that wait for their rows
  // Rows as products take them, if they travel otherwise:
  Buffer<std::byte> decoded;            // [sources, bytes]
  std::vector<bool> is_decoded;         // [sources] those that are there
  std::vector<std::int64_t> to_decode;  // scratch: sources
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

/// A batch on its way back through an MoE layer.
struct MoeBackward {
  PartBackward part;
  MoeStash& stash;  // of its forward pass, used up
};

/// The expert-parallel MoE layer: route -> dispatch -> execute -> combine. A token's result is
/// sum_k weight_k * expert_k(x), f32, in ascending expert id, whichever rank computed each part;
/// what the layer before has deferred comes first. With Combine::fast it is the sum of such sums
/// over the experts of a rank, with several nodes of sums of these over the ranks of a node, in
/// ascending order of the lowest expert of each.
///
/// It runs in halves, so that a rank can do other work while rows travel: the shared expert, or
/// another batch in another workspace. Every rank makes the same calls in the same order.
class MoeLayer {
 public:
  MoeLayer(Router router, std::unique_ptr<Experts> experts, RowSource::Element element,
           const Compute& compute)
      : router_(std::move(router)),
        experts_(std::move(experts)),
        element_(element),
        compute_(compute) {}

  /// Says that products of all experts, also of other ranks, make the same codes of a row.
  void take_int8(const Int8Rows& rows) { codes_ = rows; }

  /// Batches go this way whose experts are all on GPUs: with several ranks all do. Then nothing is
  /// deferred, rounded or kept for a backward pass, and one batch at a time is under way.
  void take_road(DeviceRoad& road) { road_ = &road; }

  /// Sends the tokens of `x` [tokens, hidden], normed activations in f32, to their experts. `x` is
  /// not needed afterwards.
  void begin(MatrixView<const float> x, MoeWorkspace& work);
  /// Runs this rank's experts once their rows are here and sends the results home. Until then it
  /// runs what the layer before has deferred. Between nodes an expert runs as soon as its own rows
  /// are here, and results leave in pieces.
  void execute(MoeWorkspace& work);
  /// Overwrites `y` [tokens, hidden] with the sums, once the results are here (with keeps_alone,
  /// not at all: it is null); executes first if that has not been done. Until they are here it runs
  /// what this layer defers.
  void end(MatrixView<float> y, MoeWorkspace& work);

  /// The same halves of a backward pass, on the roads of the forward pass: a token's gradient goes
  /// once to each rank of its experts, with the routing weights; an expert gives back the gradient
  /// of its input, not yet weighted, and that of the weight.
  void begin_backward(const MoeBackward& pass, MoeWorkspace& work);
  void execute_backward(const MoeBackward& pass, MoeWorkspace& work);
  /// Overwrites pass.part.dx.
  void end_backward(const MoeBackward& pass, MoeWorkspace& work);

 private:
  /// As products take them.
  void write_numbers(std::span<const float> numbers, std::byte* to) const;
  void write_activations(MatrixView<const float> x, WireRows& rows) const;
  static void write_keys(MoeWorkspace& work);
  [[nodiscard]] WireCodec codec(const MoeWorkspace& work) const {
    return {work.context.options.wire, *compute_.vector};
  }
  /// How rows travel: as products take them, as the codes that products make of them, or rounded.
  enum class RowForm { plain, codes, rounded };
  [[nodiscard]] RowForm row_form(const MoeWorkspace& work) const;
  void encode_rows(MatrixView<const float> x, MoeWorkspace& work) const;
  void start_decoding(MoeWorkspace& work) const;
  void decode_rows(std::span<const std::int32_t> sources, MoeWorkspace& work) const;
  void count_choices(MoeWorkspace& work) const;
  void route(MatrixView<const float> x, MoeWorkspace& work) const;
  void keep_probabilities(MoeWorkspace& work) const;
  static void keep_received(MoeWorkspace& work);
  static void mark_samples(std::span<const SampleRange> samples, MoeWorkspace& work);
  void gather_backward(const MoeStash& stash, MoeWorkspace& work) const;
  [[nodiscard]] PendingDispatch send_rows(MoeWorkspace& work) const;
  [[nodiscard]] bool goes_by_road(const Routing& routing) const;
  void begin_on_road(MatrixView<const float> x, MoeWorkspace& work) const;
  void execute_on_road(MoeWorkspace& work) const;
  void end_on_road(MatrixView<float> y, const MoeWorkspace& work) const;
  void finish_plans(MoeWorkspace& work);
  void finish_plan(ChoiceBatch& choices, MoeWorkspace& work);
  void list_inputs(ChoiceBatch& choices, MoeWorkspace& work) const;
  static void list_choices(ChoiceBatch& choices, const MoeWorkspace& work);
  [[nodiscard]] static std::vector<std::int64_t> inputs_in_order(const MoeWorkspace& work);
  void tell_placement(const MoeWorkspace& work) const;
  /// As products take it.
  [[nodiscard]] const std::byte* row_of_source(std::int64_t source, const MoeWorkspace& work) const;
  void compute(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const;
  /// Some outputs of `choices`, which leave at once.
  void compute_and_send(ChoiceBatch& choices, SlotRange slots, MoeWorkspace& work) const;
  [[nodiscard]] static bool runs_as_rows_come(const MoeWorkspace& work);
  void decode_inputs(SlotRange slots, MoeWorkspace& work) const;
  void compute_as_rows_come(MoeWorkspace& work) const;
  void compute_while_waiting(DeferredChoices& deferred, MoeWorkspace& work,
                             const std::function<bool()>& is_done) const;
  struct Rows {
    std::int64_t first;
    std::int64_t count;
  };
  void finish_outputs(ChoiceBatch& choices, const Rows& rows, const MoeWorkspace& work) const;
  void encode_results(ChoiceBatch& choices, const Rows& rows, const WireCodec& codec) const;
  void sum_parts(ChoiceBatch& choices, std::span<const std::int32_t> parts,
                 const WireCodec& codec) const;
  void add_node_parts(ChoiceBatch& choices, const MoeWorkspace& work) const;
  void send_results(ChoiceBatch& choices, TokenExchange::Outputs when, MoeWorkspace& work) const;
  /// The results of some choices of each token: unweighted, or with Combine::fast weighted and
  /// added as far as they come from one rank or one node.
  struct Results {
    const Routing& routing;
    const ExchangePlan& plan;
    const PendingResults& home;
  };
  /// Overwrites `y` with the sum of all parts, one after the other.
  void sum_results(MatrixView<float> y, std::span<const Results> parts,
                   const MoeWorkspace& work) const;

  Router router_;
  std::unique_ptr<Experts> experts_;
  RowSource::Element element_;
  Compute compute_;
  std::optional<Int8Rows> codes_;
  DeviceRoad* road_ = nullptr;  // null: all go over the memory of hosts
};

}  // namespace moesaic
