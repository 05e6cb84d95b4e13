#include "launch/study/shape_point.h"

#include "base/error.h"
#include "launch/options/choices.h"
#include "src/parallel/expert_popularity.h"

namespace moesaic {
namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

bool is_shape_job(StudyJob job) noexcept {
  return job == StudyJob::layer || job == StudyJob::exchange;
}

void require_point(const Options& options) {
  const std::string_view job = choice_name(options.job);
  require(!options.shape || options.model.empty(), ErrorKind::usage,
          "--shape {} and --model {}: a point has one of them", options.shape.value_or(""),
          options.model);
  if (is_shape_job(options.job)) {
    require(options.shape.has_value(), ErrorKind::usage,
            "--job {} is of one layer: --shape NAME says which", job);
    (void)parse_layer_shape(*options.shape, options.shape_experts);
    return;
  }
  require(!options.shape, ErrorKind::usage,
          "--job {} needs a model: --shape is for --job layer and --job exchange", job);
  require(options.shape_experts == 0, ErrorKind::usage,
          "--experts {} is for --shape: a model has the experts that it has",
          options.shape_experts);
}

ShapePoint shape_point(const Options& options, std::int64_t ranks) {
  const std::int64_t tokens = divided_up(options.sequences * options.point_prompt, ranks);
  const std::int64_t passes = divided_up(tokens, options.batch_size);
  return {.shape = parse_layer_shape(options.shape.value_or(""), options.shape_experts),
          .layout = options.expert_format.value_or(Layout{.format = Format::bf16}),
          .pass_tokens = divided_up(tokens, passes),
          .passes = passes};
}

LayerRouting shape_routing(const Options& options, const ShapePoint& point, std::int64_t ranks) {
  const auto popularity = ExpertPopularity::from_text(options.plan_routing);
  return {point.shape, point.pass_tokens * ranks, popularity.rates(0, point.shape.experts),
          static_cast<std::uint64_t>(options.seed)};
}

}  // namespace moesaic
