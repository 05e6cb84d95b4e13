#include "tests/model/gqa_problem.h"

#include <memory>
#include <utility>

#include "src/model/gqa_attention.h"

namespace moesaic {
GqaProblem make_gqa_problem(GqaConfig config, std::vector<std::int64_t> samples) {
  config.hidden = 10;
  config.rms_norm_eps = 1e-5;
  config.scale = 0.3;
  if (config.rope.rotary_dim == 0) config.rope.rotary_dim = config.head_dim;
  const std::int64_t width = config.projected_width();
  NaiveGqa model{.config = config,
                 .qkv = exact_numbers(width * config.hidden, 1, 0.5),
                 .o = exact_numbers(config.hidden * config.q_width(), 2, 0.5)};
  if (config.qkv_bias) model.qkv_bias = exact_numbers(width, 3, 1);
  if (config.o_bias) model.o_bias = exact_numbers(config.hidden, 4, 1);
  if (config.qk_norm != QkNorm::none) {
    const bool whole = config.qk_norm == QkNorm::whole;
    model.q_norm = exact_numbers(whole ? config.q_width() : config.head_dim, 5, 1);
    model.k_norm = exact_numbers(whole ? config.kv_width() : config.head_dim, 6, 1);
  }
  if (config.sinks) model.sinks = exact_numbers(config.num_heads, 9, 2);
  const auto adapter = [&](bool of_output, std::int64_t first, std::int64_t rows, unsigned seed) {
    const std::int64_t in = of_output ? config.q_width() : config.hidden;
    model.adapters.push_back({.matrix = of_output ? kO : kQkv,
                              .first_row = first,
                              .rows = rows,
                              .rank = 3,
                              .scale = 1.5,
                              .a = exact_numbers(3 * in, seed, 0.3),
                              .b = exact_numbers(rows * 3, seed + 1, 0.3)});
  };
  const std::int64_t queries = config.gate_width() + config.q_width();
  adapter(false, 0, queries, 20);
  adapter(false, queries, config.kv_width(), 30);
  adapter(false, queries + config.kv_width(), config.kv_width(), 40);
  adapter(true, 0, config.hidden, 50);
  GqaProblem problem{.model = model, .samples = std::move(samples), .x = {}, .dy = {}};
  problem.x = exact_numbers(problem.rows() * config.hidden, 7, 1);
  problem.dy = exact_numbers(problem.rows() * config.hidden, 8, 1);
  return problem;
}

MixerResult run_gqa(const GqaProblem& problem, const MixerRun& run) {
  const NaiveGqa& model = problem.model;
  LayerBed bed(kSinks + 1, run.precision);
  bed.keep_vector(kQkvBias, model.qkv_bias);
  bed.keep_vector(kOBias, model.o_bias);
  bed.keep_vector(kQNorm, model.q_norm);
  bed.keep_vector(kKNorm, model.k_norm);
  bed.keep_vector(kSinks, model.sinks);
  bed.keep_matrix(kQkv, model.qkv, model.config.hidden);
  bed.keep_matrix(kO, model.o, model.config.q_width());
  bed.add_adapters(model.adapters);
  return run_mixer(problem, std::make_shared<const GqaKind>(model.config), bed, run);
}

}  // namespace moesaic
