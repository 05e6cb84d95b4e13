#include "launch/study/shape_jobs.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "launch/bench/exchange_bed.h"
#include "launch/job/agreement.h"
#include "launch/job/memory_check.h"
#include "launch/shapes/shape_point.h"
#include "launch/study/shape_layer.h"

namespace moesaic {
namespace {

/// What both jobs have.
class ShapeJob : public PointJob {
 public:
  explicit ShapeJob(const Runtime& runtime) : runtime_(runtime) {
    const int sharers = runtime.grid().experts().size();
    agree(runtime.world(), [&] {
      point_ = shape_point(runtime.options(), runtime.world().size());
      placement_.emplace(ExpertPlacement(point_.shape.experts, sharers));
      routing_.emplace(shape_routing(runtime.options(), point_, sharers));
    });
  }

  [[nodiscard]] PointFacts facts() const override {
    return {.experts = point_.shape.experts,
            .experts_per_token = point_.shape.topk,
            .layers = 1,
            .hidden = point_.shape.hidden,
            .routing = runtime_.options().plan_routing,
            .planned_node_bytes = planned_bytes_};
  }
  [[nodiscard]] std::int64_t tokens() const override {
    return point_.rank_tokens() * runtime_.world().size();
  }
  [[nodiscard]] PointWork& work() override { return *work_; }

 protected:
  [[nodiscard]] const Runtime& runtime() const noexcept { return runtime_; }
  [[nodiscard]] const ShapePoint& point() const noexcept { return point_; }
  [[nodiscard]] const ModelPlacement& placement() const { return *placement_; }
  [[nodiscard]] const LayerRouting& routing() const { return *routing_; }
  [[nodiscard]] int rank() const { return runtime_.grid().experts().rank(); }
  /// With as many rows for this rank's experts as the tokens choose.
  [[nodiscard]] RankSharing sharing() const {
    const std::vector<std::int64_t> rows = routing_->rows_of_experts();
    std::int64_t sum = 0;
    std::int64_t most = 0;
    for (const ExpertId expert : placement_->of_layer(0).experts_of(rank())) {
      sum += rows[static_cast<std::size_t>(expert)];
      most = std::max(most, rows[static_cast<std::size_t>(expert)]);
    }
    const CostRanks ranks = job_ranks(runtime_);
    const auto mean = static_cast<double>(point_.pass_tokens * point_.shape.topk);
    return {.sharers = ranks.sharers(),
            .nodes = ranks.sharer_nodes(),
            .all_tokens = point_.pass_tokens * ranks.sharers(),
            .threads = ranks.threads,
            .max_over_mean = static_cast<double>(sum) / mean,
            .expert_rows = most};
  }
  /// Of an exchange: its rows and results, on the rank that has most.
  [[nodiscard]] std::int64_t exchange_bytes() const {
    std::vector<int> nodes(static_cast<std::size_t>(placement_->num_ranks()));
    return ExchangeBed::bytes_needed(
        ExchangeBed::sizes(point_.shape, WireForm::exact, Combine::ordered),
        ExchangeLoads(*routing_, placement_->of_layer(0), nodes, Combine::ordered),
        point_.pass_tokens);
  }
  /// Collective.
  void check(const RankMemory& memory, const WeightBytes::ByFormat& experts = {}) {
    planned_bytes_ = check_rank_memory(runtime_, memory, experts);
  }
  void start(std::unique_ptr<PointWork> work) { work_ = std::move(work); }

 private:
  const Runtime& runtime_;
  ShapePoint point_;
  std::optional<ModelPlacement> placement_;
  std::optional<LayerRouting> routing_;
  std::unique_ptr<PointWork> work_;
  std::int64_t planned_bytes_ = 0;
};

/// A whole layer, from router to sums.
class LayerJob final : public ShapeJob {
 public:
  explicit LayerJob(const Runtime& runtime) : ShapeJob(runtime) {
    const std::int64_t experts = placement().of_layer(0).num_local_experts(rank());
    const RankMemory memory = shape_memory(point(), experts, sharing());
    WeightBytes::ByFormat formats{};
    formats[static_cast<std::size_t>(point().layout.format)] = memory.own[MemoryItem::expert];
    check(memory, formats);
    load_seconds_ = time_together(runtime.world(), [&] {
      layer_.emplace(ShapeLayer::Parts{point(), routing(), placement(), rank(), compute_});
    });
    start(layer_->work_over(runtime.grid().experts()));
    work().run();
    layer_->check(work());
  }

  [[nodiscard]] PointFacts facts() const override {
    PointFacts facts = ShapeJob::facts();
    facts.expert_format = std::string(format_name(point().layout.format));
    facts.load_seconds = load_seconds_;
    return facts;
  }
  [[nodiscard]] std::unique_ptr<PointWork> work_over(Communicator& experts) override {
    return layer_->work_over(experts);
  }
  [[nodiscard]] std::map<Format, double> multiplied() const override {
    return {{point().layout.format, operations()}};
  }
  /// Operations, or reads of the experts that are chosen, each once a pass.
  [[nodiscard]] double least_seconds(const Roofs& roofs) const override {
    const std::vector<std::int64_t> rows = routing().rows_of_experts();
    const auto chosen = std::ranges::count_if(rows, [](std::int64_t n) { return n > 0; });
    const auto bytes = static_cast<double>(point().passes * runtime().grid().expert_replicas() *
                                           chosen * layer_bytes(point().shape, point().layout, 1));
    return std::max(operations() / roofs.flops_per_second, bytes / roofs.bytes_per_second);
  }

 private:
  /// Of all ranks in a run.
  [[nodiscard]] double operations() const {
    const LayerShape& shape = point().shape;
    return static_cast<double>(tokens() * shape.topk) * 6 *
           static_cast<double>(shape.hidden * shape.intermediate);
  }

  Compute compute_ = runtime().compute();
  std::optional<ShapeLayer> layer_;
  double load_seconds_ = 0;
};

/// Exchanges of known rows, there and back, with nothing between.
class ExchangeWork final : public PointWork {
 public:
  ExchangeWork(Communicator& experts, const ExchangeBed::Case& what, std::int64_t passes)
      : what_(what), experts_(experts), passes_(passes), bed_(experts, what) {
    bed_.prepare();
    (void)bed_.exchange();
    const std::int64_t wrong = bed_.count_wrong();
    require(wrong == 0, ErrorKind::internal, "{} bytes of an exchange arrived wrong", wrong);
    reset_counts();
  }

  void run() override {
    for (std::int64_t pass = 0; pass < passes_; ++pass) {
      const ExchangeBed::Times times = bed_.exchange();
      seconds_ += times.dispatch + times.combine;
    }
    passes_done_ += passes_;
  }
  void reset_counts() override {
    seconds_ = 0;
    passes_done_ = 0;
    moved_before_ = experts_.row_counters();
  }
  /// All of it is time in exchanges.
  [[nodiscard]] PointCounts counts() const override {
    PointCounts counts;
    counts.times[Phase::wait] = seconds_;
    counts.moved = experts_.row_counters().since(moved_before_);
    const std::int64_t tokens = what_.routing.num_tokens() / what_.placement.num_ranks();
    auto& rows = counts.rows.emplace_back(static_cast<std::size_t>(what_.shape.experts));
    for (std::int64_t token = 0; token < what_.routing.num_tokens(); ++token) {
      const bool is_own = token / tokens == experts_.rank();
      for (const ExpertId expert : what_.routing.experts_of(token)) {
        if (is_own) rows[static_cast<std::size_t>(expert)] += passes_done_;
        if (what_.placement.rank_of(expert) == experts_.rank()) counts.load.rows += passes_done_;
      }
    }
    return counts;
  }

 private:
  ExchangeBed::Case what_;
  Communicator& experts_;
  std::int64_t passes_;
  ExchangeBed bed_;
  double seconds_ = 0;
  std::int64_t passes_done_ = 0;
  RowCounters moved_before_;
};

class ExchangeJob final : public ShapeJob {
 public:
  explicit ExchangeJob(const Runtime& runtime) : ShapeJob(runtime) {
    RankMemory memory;
    memory.own[MemoryItem::exchange] = exchange_bytes();
    check(memory);
    start(work_over(runtime.grid().experts()));
  }

  [[nodiscard]] std::unique_ptr<PointWork> work_over(Communicator& experts) override {
    return std::make_unique<ExchangeWork>(
        experts,
        ExchangeBed::Case{
            .shape = point().shape, .placement = placement().of_layer(0), .routing = routing()},
        point().passes);
  }
  [[nodiscard]] std::map<Format, double> multiplied() const override { return {}; }
  [[nodiscard]] double least_seconds(const Roofs&) const override { return 0; }
};

}  // namespace

std::unique_ptr<PointJob> make_shape_job(const Runtime& runtime) {
  if (runtime.options().job == StudyJob::exchange) return std::make_unique<ExchangeJob>(runtime);
  return std::make_unique<LayerJob>(runtime);
}

}  // namespace moesaic
