#include "launch/shapes/shape_point.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "base/rounding.h"
#include "launch/options/choices.h"
#include "launch/options/option_table.h"
#include "launch/shapes/job_options.h"
#include "launch/shapes/layer_copies.h"
#include "src/model/feed_forward.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {

namespace {

/// Options of exchanges that the job has none of have to be as they are by themselves.
void require_exchange(const Command& command) {
  constexpr std::array<std::string_view, 6> kNames = {
      "activation-scales", "defer", "wire", "combine", "half-batches", "placement"};
  const StudyJob job = command.options.job;
  for (const std::string_view name : kNames) {
    const bool is_of_job = job_takes(job, name);
    if (is_of_job || source_of(command, name) == OptionSource::environment) continue;
    const OptionRow& row = *find_option(name, Verb::study_point);
    const std::string value = value_text(row, command.options);
    require(value == value_text(row, {}), ErrorKind::usage,
            "--{} {} is for a model that runs, not for --job {}", name, value, choice_name(job));
  }
}

}  // namespace

void require_point(const Command& command) {
  const Options& options = command.options;
  const std::string_view job = choice_name(options.job);
  require_exchange(command);
  require(!options.shape || options.model.empty(), ErrorKind::usage,
          "--shape {} and --model {}: a point has one of them", options.shape.value_or(""),
          options.model);
  if (is_shape_job(options.job)) {
    require(options.shape.has_value(), ErrorKind::usage,
            "--job {} is of one layer: --shape NAME says which", job);
    require_runnable(parse_layer_shape(*options.shape, options.shape_experts), "--shape");
    return;
  }
  require(options.shape || !options.model.empty(), ErrorKind::usage,
          "no model: --model DIR says which, or --shape NAME with --job layer");
  require(!options.shape, ErrorKind::usage,
          "--job {} needs a model: --shape is for --job layer and --job exchange", job);
  require(options.shape_experts == 0, ErrorKind::usage,
          "--experts {} is for --shape: a model has the experts that it has",
          options.shape_experts);
  const OptionSource routing = source_of(command, "routing");
  require(routing == OptionSource::preset || routing == OptionSource::environment, ErrorKind::usage,
          "--routing {} is for --shape: a model chooses experts itself", options.plan_routing);
}

ShapePoint shape_point(const Options& options, std::int64_t ranks) {
  const std::int64_t tokens = divide_up(options.sequences * options.point_prompt, ranks);
  const std::int64_t passes = divide_up(tokens, options.batch_size);
  return {.shape = parse_layer_shape(options.shape.value_or(""), options.shape_experts),
          .layout = options.expert_format.value_or(Layout{.format = Format::bf16}),
          .pass_tokens = divide_up(tokens, passes),
          .passes = passes};
}

RankMemory shape_memory(const ShapePoint& point, std::int64_t experts, const RankSharing& sharing) {
  const LayerShape& shape = point.shape;
  const ExpertTokens tokens{
      .hidden = shape.hidden, .topk = shape.topk, .tokens = point.pass_tokens};
  RankMemory memory;
  memory.own[MemoryItem::expert] = layer_bytes(shape, point.layout, experts);
  // Input and sums of tokens, and what a layer of a model has.
  const MoeKind layer({.hidden = shape.hidden,
                       .experts = shape.experts,
                       .expert_width = shape.intermediate,
                       .router = {.topk = shape.topk}});
  memory.own[MemoryItem::activation] =
      point.pass_tokens * (2 * 4 * shape.hidden + layer.row_bytes()) +
      expert_outputs(tokens, sharing) * layer.expert_row_bytes() +
      mlp_scratch_bytes({.hidden = shape.hidden,
                         .width = shape.intermediate,
                         .rows = sharing.expert_rows,
                         .mlps = experts,
                         .threads = sharing.threads,
                         .packed_bytes = is_integer(point.layout.format) ? 1 : 4});
  memory.own[MemoryItem::exchange] = exchange_bytes(tokens, sharing);
  return memory;
}

LayerRouting shape_routing(const Options& options, const ShapePoint& point, std::int64_t ranks) {
  const auto popularity = ExpertPopularity::from_text(options.plan_routing);
  return {point.shape, point.pass_tokens * ranks, popularity.rates(0, point.shape.experts),
          static_cast<std::uint64_t>(options.seed)};
}

}  // namespace moesaic
