#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "base/split.h"
#include "launch/bench/exchange_run.h"
#include "launch/bench/result_printer.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/memory_check.h"
#include "launch/job/verbs.h"
#include "launch/options/choices.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {
namespace {

/// Beside what is timed, first runs that do not count.
constexpr double kRunsOfCase = 1.5;

/// One line of the table.
struct ExchangeCase {
  const LayerShape& shape;
  WireForm wire;
  RoutingKind kind;
  std::int64_t tokens;  // of each rank
};

class ExchangeBench {
 public:
  ExchangeBench(const Runtime& runtime, std::vector<LayerShape> layers);
  void run();
  /// Throws Error{internal} if anything arrived wrong.
  void end();

 private:
  void run_case(const ExchangeCase& line);
  [[nodiscard]] ExchangeSizes sizes(const ExchangeCase& line) const {
    return ExchangeBed::sizes(line.shape, line.wire, runtime_->options().combine);
  }
  [[nodiscard]] bool has_room(const ExchangeCase& line, const ExchangeLoads& loads) const;
  [[nodiscard]] ResultLine make_line(const ExchangeCase& line, const ExchangeLoads& loads,
                                     const ExchangeTimes& times) const;

  const Runtime* runtime_;
  Communicator* world_;
  std::vector<LayerShape> layers_;
  std::vector<WireForm> wires_;
  std::vector<RoutingKind> routings_;
  std::vector<int> nodes_;    // [ranks] which reach each other without messages
  bool adds_beyond_ = false;  // ranks that send each other messages add their results first
  std::unique_ptr<ExpertNodes> expert_nodes_;
  MpiRivals mpi_;
  ResultPrinter printer_;
  std::int64_t wrong_ = 0;  // bytes
};

/// Of --wire LIST.
std::vector<WireForm> parse_wires(const std::string& text) {
  std::vector<WireForm> wires;
  for (const std::string_view name : split_list(text)) {
    const auto& known = kChoices<WireForm>;
    const auto found = std::ranges::find(known, name, &NamedValue<WireForm>::name);
    require(found != known.end(), ErrorKind::usage, "--wire: \"{}\" is not one of {}", name,
            fmt::join(kChoiceNames<WireForm>, ", "));
    wires.push_back(found->value);
  }
  return wires;
}

BenchAmount exchange_amount(const Runtime& runtime, std::int64_t layers) {
  const Options& options = runtime.options();
  return {.lines = layers * std::ssize(parse_wires(options.wires)) *
                   std::ssize(routing_kinds(options.routing)) * std::ssize(options.tokens),
          .seconds_of_line = kRunsOfCase * options.seconds};
}

ExchangeBench::ExchangeBench(const Runtime& runtime, std::vector<LayerShape> layers)
    : runtime_(&runtime),
      world_(&runtime.world()),
      layers_(std::move(layers)),
      wires_(parse_wires(runtime.options().wires)),
      routings_(routing_kinds(runtime.options().routing)),
      printer_(runtime, exchange_amount(runtime, std::ssize(layers_))) {
  const bool by_messages = runtime.options().transport == Transport::mpi;
  for (const RankInfo& rank : runtime.ranks()) {
    nodes_.push_back(by_messages ? static_cast<int>(nodes_.size()) : rank.node);
  }
  if (runtime.options().combine == Combine::fast) expert_nodes_ = make_expert_nodes(*world_);
  adds_beyond_ = by_messages && expert_nodes_ && runtime.num_nodes() < world_->size();
}

void ExchangeBench::run() {
  const auto run_lines = [this](const LayerShape& shape, WireForm wire) {
    for (const RoutingKind kind : routings_) {
      for (const std::int64_t tokens : runtime_->options().tokens) {
        run_case({shape, wire, kind, tokens});
        runtime_->leave_if_stop_wanted();
      }
    }
  };
  for (const LayerShape& shape : layers_) {
    for (const WireForm wire : wires_) run_lines(shape, wire);
  }
}

void ExchangeBench::run_case(const ExchangeCase& line) {
  const ExpertPlacement placement(line.shape.experts, world_->size());
  const LayerRouting routing(line.kind, line.shape, line.tokens * world_->size(),
                             placement.num_local_experts(0));
  const Combine combine = runtime_->options().combine;
  const ExchangeLoads loads(routing, placement, nodes_, combine);
  if (!has_room(line, loads)) return;
  const ExchangeTimes times = measure_exchange(*runtime_, mpi_,
                                               {.shape = line.shape,
                                                .placement = placement,
                                                .routing = routing,
                                                .wire = line.wire,
                                                .combine = combine,
                                                .nodes = expert_nodes_.get()},
                                               loads);
  wrong_ += times.wrong;
  printer_.add({make_line(line, loads, times)});
}

bool ExchangeBench::has_room(const ExchangeCase& line, const ExchangeLoads& loads) const {
  const std::int64_t wanted = ExchangeBed::bytes_needed(sizes(line), loads, line.tokens);
  const std::vector<std::int64_t> rooms = gather_values(*world_, spare_memory(*runtime_) - wanted);
  const std::int64_t room = *std::ranges::min_element(rooms);
  if (room < 0) {
    runtime_->log().once(LogLevel::warning,
                         "layer {} with {} tokens is left out: a rank lacks {} of memory for it",
                         line.shape.name(), line.tokens, format_bytes(-room));
  }
  return room >= 0;
}

ResultLine ExchangeBench::make_line(const ExchangeCase& line, const ExchangeLoads& loads,
                                    const ExchangeTimes& times) const {
  const auto whole = [](std::int64_t value) { return fmt::format("{}", value); };
  const LayerShape& shape = line.shape;
  ResultLine cells = {
      {"ranks", whole(world_->size())},
      {"nodes", whole(runtime_->num_nodes())},
      {"transport", world_->transport(), true},
      {"experts", whole(shape.experts)},
      {"hidden", whole(shape.hidden)},
      {"topk", whole(shape.topk)},
      {"wire", std::string(choice_name(line.wire)), true},
      {"routing", std::string(routing_name(line.kind)), true},
      {"tokens", whole(line.tokens)},
      {"us", short_number(times.us)},
      {"us_p99", short_number(times.us_p99)},
      {"dispatch_us", short_number(times.dispatch_us)},
      {"combine_us", short_number(times.combine_us)},
      {"messages", whole(times.messages)},
      {"bytes_near", whole(times.bytes_near)},
      {"bytes_far", whole(times.bytes_far)},
      {"bytes_far_expected", adds_beyond_ ? "null" : whole(loads.far_bytes(sizes(line)))},
      {"dedup", short_number(loads.choices_of_row())},
      {"memcpy_us", short_number(times.memcpy_us)},
      {"alltoallv_us", short_number(times.alltoallv_us)},
      {"stream_us", short_number(times.stream_us)},
      {"pingpong_us", short_number(times.pingpong_us)},
      {"wrong", whole(times.wrong)}};
  const Combine combine = runtime_->options().combine;
  if (combine != Combine::ordered)
    cells.push_back({"combine", std::string(choice_name(combine)), true});
  return cells;
}

void ExchangeBench::end() {
  printer_.end();
  agree(*world_, [&] {
    require(wrong_ == 0, ErrorKind::internal, "{} bytes arrived wrong: see the lines", wrong_);
  });
}

}  // namespace

void run_bench_exchange(Runtime& runtime) {
  std::vector<LayerShape> layers;
  agree(runtime.world(), [&] {
    layers = parse_layers(runtime.options().layers);
    for (const LayerShape& shape : layers) {
      (void)ExpertPlacement(shape.experts, runtime.world().size());
    }
    (void)parse_wires(runtime.options().wires);
    (void)result_form(runtime.options());
  });
  ExchangeBench bench(runtime, std::move(layers));
  runtime.run_or_end_early("not all lines are there", [&] { bench.run(); });
  bench.end();
}

}  // namespace moesaic
