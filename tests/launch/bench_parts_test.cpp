// What the verbs bench kernels and bench layer are made of.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/json.h"
#include "comm/thread_communicator.h"
#include "kernels/kernel_table.h"
#include "kernels/whole_product.h"
#include "launch/bench/bench_team.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/layer_parts.h"
#include "launch/bench/link_measure.h"
#include "launch/bench/rival_product.h"
#include "launch/bench/sample_rows.h"
#include "launch/results/result_table.h"
#include "launch/shapes/cold_weights.h"
#include "launch/shapes/expert_halves.h"
#include "launch/shapes/layer_copies.h"
#include "launch/shapes/layer_routing.h"
#include "launch/shapes/named_shapes.h"
#include "src/model/weight_layout.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;

// --- roofs --------------------------------------------------------------------------------------

TEST(Teams, HaveALineOfRoofsOnceTheyHaveMeasuredSome) {
  run_thread_ranks(1, [](Communicator& world) {
    const Buffer<std::byte> memory(1 << 16);
    std::vector<std::unique_ptr<Team>> teams;
    for (const int threads : {1, 2}) {
      teams.push_back(std::make_unique<Team>(world, threads, memory.span()));
    }
    EXPECT_TRUE(roof_lines(teams).empty());
    const MultiplyLoop& loop = find_multiply_loop(Isa::scalar, Format::f32);
    teams.front()->measure_roofs(loop);  // and is interrupted
    const std::vector<std::string> lines = roof_lines(teams);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines.front().starts_with("roofs of 1 thread: reads ")) << lines.front();
    EXPECT_NE(lines.front().find(loop.instruction), std::string::npos) << lines.front();
  });
}

// --- tables -------------------------------------------------------------------------------------

std::vector<ResultLine> two_lines() {
  return {{{"name", "a \"b\"", true}, {"n", "1"}}, {{"name", "c", true}, {"n", "23.5"}}};
}

TEST(ResultTable, MarkdownAlignsNumbersToTheRight) {
  EXPECT_EQ(result_table(two_lines(), ResultForm::md),
            "| name  |    n |\n"
            "| ----- | ---: |\n"
            "| a \"b\" |    1 |\n"
            "| c     | 23.5 |\n");
}

TEST(ResultTable, LinesThatComeBitByBitMakeTheSameTable) {
  const std::vector<ResultLine> lines = two_lines();
  for (const ResultForm form :
       {ResultForm::md, ResultForm::csv, ResultForm::json, ResultForm::jsonl}) {
    ResultTable table(form);
    const std::vector<ResultLine> none;
    std::string text = table.add(none);
    for (const ResultLine& line : lines) text += table.add({&line, 1});
    EXPECT_EQ(text + table.end(), form == ResultForm::md ? "| name  |   n |\n"
                                                           "| ----- | --: |\n"
                                                           "| a \"b\" |   1 |\n"
                                                           "| c     | 23.5 |\n"
                                                         : result_table(lines, form));
  }
  EXPECT_EQ(Json::parse(ResultTable(ResultForm::json).end(), "table").size(), 0);
}

TEST(ResultTable, CsvQuotesEveryValue) {
  EXPECT_EQ(result_table(two_lines(), ResultForm::csv),
            "name,n\n\"a \"\"b\"\"\",\"1\"\n\"c\",\"23.5\"\n");
}

TEST(ResultTable, JsonIsAnArrayAndJsonlAnObjectALine) {
  const Json json = Json::parse(result_table(two_lines(), ResultForm::json), "table");
  ASSERT_EQ(json.size(), 2);
  EXPECT_EQ(json.at(0).at("name").as_string(), "a \"b\"");
  EXPECT_DOUBLE_EQ(json.at(1).at("n").as_double(), 23.5);
  const std::string lines = result_table(two_lines(), ResultForm::jsonl);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
  EXPECT_EQ(Json::parse(lines.substr(lines.find('\n') + 1), "line 2").at("name").as_string(), "c");
}

TEST(ResultTable, ShortNumbersHaveFourDigits) {
  EXPECT_EQ(short_number(123456.7), "123457");
  EXPECT_EQ(short_number(1234.56), "1235");
  EXPECT_EQ(short_number(12.345678), "12.35");
  EXPECT_EQ(short_number(0.00123456), "0.001235");
  EXPECT_EQ(short_number(0.0004211), "0.0004211");
  EXPECT_EQ(short_number(3e-16), "0.0000000000000003000");
  EXPECT_EQ(short_number(-0.75, 3), "-0.750");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(std::numeric_limits<double>::infinity()), "null");
}

// --- times --------------------------------------------------------------------------------------

TEST(BenchTiming, QuartileIsWhatAQuarterDoNotExceed) {
  EXPECT_EQ(lower_quartile({9, 1, 5, 3, 7}), 3);
  EXPECT_EQ(lower_quartile({2, 1}), 1);
  EXPECT_EQ(lower_quartile({4}), 4);
}

TEST(BenchTiming, ADifferenceCountsIfSamplesSpreadOverLess) {
  EXPECT_EQ(longer_by({30, 31, 90, 90}, {9, 10, 10, 80}), 21);
  EXPECT_EQ(longer_by({9, 10, 10, 80}, {30, 31, 90, 90}), std::nullopt);
  EXPECT_EQ(longer_by({5, 5, 5}, {5, 5, 5}), std::nullopt);
  // Of ranks that wait for others on their cores, 4 ms at a time.
  EXPECT_EQ(longer_by({8000, 8012, 8040, 12000, 16000}, {20, 7990, 7990, 7990, 12000}),
            std::nullopt);
  EXPECT_EQ(longer_by({20, 8012, 8040, 12000, 16000}, {4000, 4001, 7990, 7990, 12000}),
            std::nullopt);
}

TEST(BenchLinks, WhatNoiseHidesIsABoundAndSaidToBe) {
  LinkTimes times{.idle = std::vector<double>(8, 1e-6),
                  .one_row = std::vector<double>(8, 3e-6),
                  .one_rank = std::vector<double>(8, 403e-6),
                  .all_ranks = std::vector<double>(8, 803e-6),
                  .bytes = 4e6,
                  .ranks_of_node = 2};
  const MeasuredLink quiet = link_rates(times);
  EXPECT_FALSE(quiet.is_noisy);
  EXPECT_NEAR(quiet.rates.latency_seconds, 2e-6, 1e-12);
  EXPECT_NEAR(quiet.rates.one_rank_bytes_per_second, 1e10, 1);
  EXPECT_NEAR(quiet.rates.all_ranks_bytes_per_second, 1e10, 1);

  times.one_row = std::vector<double>(8, 5e-3);  // others had the cores meanwhile
  const MeasuredLink noisy = link_rates(times);
  EXPECT_TRUE(noisy.is_noisy);
  EXPECT_NEAR(noisy.rates.one_rank_bytes_per_second, 4e6 / 403e-6, 1);
  EXPECT_NEAR(noisy.rates.all_ranks_bytes_per_second, 8e6 / 803e-6, 1);

  times.other_nodes = 2;
  EXPECT_NEAR(link_rates(times).rates.latency_seconds, 0.5e-6, 1e-12);
}

TEST(BenchTiming, RepeatsUntilTheBudgetIsSpent) {
  int runs = 0;
  EXPECT_EQ(repeat(1, [&] { return ++runs, 0.25; }).size(), 4U);
  EXPECT_EQ(runs, 5);  // the first warms up
  EXPECT_EQ(repeat(0.1, [] { return 0.09; }).size(), 2U);
  runs = 0;
  EXPECT_EQ(repeat(1, [&] { return ++runs, 1.5; }).size(), 2U);  // too long not to count
  EXPECT_EQ(runs, 2);
}

TEST(ColdWeights, RotationTakesAllInTurnAndNoNeighboursInARow) {
  for (const std::size_t count : {1, 2, 3, 5, 6, 8, 12, 97, 100}) {
    Rotation rotation(count);
    std::set<std::size_t> seen;
    std::size_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t next = rotation.next();
      if (count > 4) {
        EXPECT_NE(next, last + 1) << count;
      }
      seen.insert(last = next);
    }
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

// --- products -----------------------------------------------------------------------------------

/// Rows of floats from a kernel or a rival.
double error_of(const Layout& layout, const MatrixShape& shape, const SampleWeights& weights) {
  const auto element =
      layout.format == Format::f32 ? RowSource::Element::f32 : RowSource::Element::bf16;
  const SampleRows rows(element, 5, shape.depth);
  std::vector<std::byte> memory(static_cast<std::size_t>(weights.bytes(shape.columns)) + 64);
  std::byte* const aligned =
      memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  const PackedMatrix matrix = weights.write_matrix(shape.columns, aligned);
  const Buffer<float> out =
      multiply(find_gemm_kernel(supported_isas().back(), layout.format), rows.source(5), matrix);
  return product_error(weights, rows, 5, shape.columns, [&](auto row, auto column) {
    return static_cast<double>(out.data()[row * matrix.num_panels() * kPanelColumns + column]);
  });
}

TEST(SampleWeights, ProductsAreThoseOfTheirValuesInEveryFormat) {
  const MatrixShape shape{.columns = 300, .depth = 200};  // more rows than are different
  std::vector<Layout> layouts = parse_formats("all");
  layouts.push_back({.format = Format::f32});
  for (const Layout& layout : layouts) {
    const double error = error_of(layout, shape, SampleWeights(layout, shape.depth));
    EXPECT_LT(error, is_integer(layout.format) ? 0.03 : 0.01) << layout_name(layout);
  }
}

TEST(SampleWeights, ErrorSeesWrongWeights) {
  const SampleWeights right({.format = Format::bf16}, 128);
  const SampleRows rows(RowSource::Element::bf16, 3, 128);
  EXPECT_DOUBLE_EQ(product_error(right, rows, 3, 16, [](auto, auto) { return 0.0; }), 1);
}

TEST(SampleWeights, NumbersHaveTheDeviationAskedFor) {
  const std::vector<float> numbers = normal_numbers(20000, 3, 1);
  double sum = 0;
  double squares = 0;
  for (const float number : numbers) {
    sum += static_cast<double>(number);
    squares += static_cast<double>(number) * static_cast<double>(number);
  }
  EXPECT_NEAR(sum / 20000, 0, 0.1);
  EXPECT_NEAR(squares / 20000, 9, 0.3);
}

TEST(Rival, MultipliesTheSameWeightsAndRows) {
  if (!OneDnnRival::is_built_in()) {
    EXPECT_NE(error_message([] { OneDnnRival::require_built_in(); }, ErrorKind::usage)
                  .find("libdnnl-dev"),
              std::string::npos);
    GTEST_SKIP() << "built without oneDNN";
  }
  const MatrixShape shape{.columns = 300, .depth = 200};
  const Buffer<std::byte> memory(1 << 20);
  for (const Layout& layout : parse_formats("bf16,int8")) {
    const SampleWeights weights(layout, shape.depth);
    const SampleRows rows(RowSource::Element::bf16, 33, shape.depth);
    RivalProduct rival(weights, rows, shape, memory.span());
    for (const std::int64_t num_rows : {1, 33}) {
      rival.prepare(num_rows, 2);
      for (int run = 0; run < 3; ++run) rival.run();
      const double error =
          product_error(weights, rows, num_rows, shape.columns,
                        [&](auto row, auto column) { return rival.result(row, column); });
      EXPECT_LT(error, is_integer(layout.format) ? 0.03 : 0.01) << layout_name(layout);
    }
  }
}

// --- layers -------------------------------------------------------------------------------------

constexpr LayerShape kSmallLayer{.experts = 16, .hidden = 64, .intermediate = 32, .topk = 4};

TEST(LayerRouting, EvenGivesEveryExpertTheSame) {
  const LayerRouting routing(RoutingKind::even, kSmallLayer, 40);
  EXPECT_EQ(routing.rows_of_experts(), std::vector<std::int64_t>(16, 10));
}

TEST(LayerRouting, TokensChooseDifferentExpertsInAscendingOrder) {
  for (const RoutingKind kind : {RoutingKind::even, RoutingKind::skewed}) {
    const LayerRouting routing(kind, kSmallLayer, 50);
    for (std::size_t choice = 0; choice < routing.experts().size(); ++choice) {
      if (choice % 4 == 0) continue;
      EXPECT_LT(routing.experts()[choice - 1], routing.experts()[choice]);
    }
  }
}

TEST(LayerRouting, SkewedGivesHalfToFewExperts) {
  const LayerShape qwen{.experts = 128, .hidden = 128, .intermediate = 32, .topk = 8};
  std::vector<std::int64_t> rows = LayerRouting(RoutingKind::skewed, qwen, 2000).rows_of_experts();
  std::ranges::sort(rows, std::greater());
  const std::int64_t few = std::accumulate(rows.begin(), rows.begin() + 16, std::int64_t{0});
  EXPECT_GT(few, 2000 * 8 / 2);
  EXPECT_LT(few, 2000 * 8 * 3 / 4);
  EXPECT_GT(rows.back(), 0);
}

TEST(LayerRouting, RotationKeepsTheRowsOfEachRank) {
  const ExpertPlacement placement(16, 3);
  const LayerRouting before(RoutingKind::skewed, kSmallLayer, 30);
  const LayerRouting after = before.rotated(placement, 7);
  EXPECT_NE(before.experts(), after.experts());
  for (int rank = 0; rank < 3; ++rank) {
    const auto sorted = [&](const LayerRouting& routing) {
      const std::vector<std::int64_t> all = routing.rows_of_experts();
      const auto first = all.begin() + placement.experts_start_idx(rank);
      std::vector<std::int64_t> own(first, first + placement.num_local_experts(rank));
      std::ranges::sort(own);
      return own;
    };
    EXPECT_EQ(sorted(before), sorted(after)) << rank;
  }
}

TEST(LayerCopies, RouterChoosesWhatTheLogitsSay) {
  ThreadPool pool(1);
  const Isa isa = supported_isas().back();
  const Compute compute{.isa = isa, .vector = &find_vector_kernels(isa), .pool = &pool};
  const Layout layout{.format = Format::bf16};
  const Buffer<std::byte> memory(3 * layer_bytes(kSmallLayer, layout, 16) + 100);
  LayerCopies layer(kSmallLayer, layout, 16, {.memory = memory.span()}, compute);
  ASSERT_EQ(layer.copies().size(), 3U);
  const LayerRouting wanted(RoutingKind::skewed, kSmallLayer, 9);
  const Buffer<float> x(5 * kSmallLayer.hidden);
  wanted.write_logits(4, x.matrix(5, kSmallLayer.hidden));
  GroupedGemm gemm(compute);
  RouterScratch scratch;
  Routing routing;
  for (LayerCopies::Copy& copy : layer.copies()) {
    copy.router.route(x.matrix(5, kSmallLayer.hidden), gemm, scratch, routing);
    EXPECT_TRUE(std::ranges::equal(routing.experts, std::span(wanted.experts()).subspan(16)));
  }
  LayerParts parts(layer, 7, compute);
  std::vector<std::int64_t> rows(16);
  rows[3] = 7;
  rows[15] = 1;
  parts.run(layer.copies().back(), x.matrix(5, kSmallLayer.hidden), rows);
}

// --- experts in two places ----------------------------------------------------------------------

/// Writes down what it is asked for.
class TellingExperts final : public Experts {
 public:
  TellingExperts(std::string name, std::string& told) : name_(std::move(name)), told_(&told) {}
  void start(const ExpertBatch& /*batch*/) override { *told_ += name_ + " starts, "; }
  void finish() override { *told_ += name_ + " ends, "; }
  void backward(const ExpertBackward& /*batch*/, AdapterGradients& /*gradients*/) override {}

 private:
  std::string name_;
  std::string* told_;
};

TEST(ExpertHalves, LetThoseOfOnePlaceRest) {
  std::string told;
  ExpertsAtWork at_work;
  const auto run = [&](ExpertHalves& halves) {
    told.clear();
    halves.start({});
    halves.finish();
    return told;
  };
  ExpertHalves both(std::make_unique<TellingExperts>("GPU", told),
                    std::make_unique<TellingExperts>("CPU", told), at_work);
  EXPECT_EQ(run(both), "GPU starts, CPU starts, CPU ends, GPU ends, ");
  at_work = {.on_gpu = true, .on_cpu = false};
  EXPECT_EQ(run(both), "GPU starts, GPU ends, ");
  ExpertHalves cpu(nullptr, std::make_unique<TellingExperts>("CPU", told), at_work);
  EXPECT_EQ(run(cpu), "");
  at_work = {.on_gpu = false, .on_cpu = true};
  EXPECT_EQ(run(both), "CPU starts, CPU ends, ");
  EXPECT_EQ(run(cpu), "CPU starts, CPU ends, ");
}

}  // namespace
}  // namespace moesaic
