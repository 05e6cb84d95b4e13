// What points of studies do, and what is told of others.

#include "launch/study/study_models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "launch/study/point_file.h"
#include "launch/study/study_config.h"
#include "launch/study/study_predict.h"
#include "launch/study/study_results.h"
#include "tests/launch/measured_points.h"
#include "tests/launch/parsed_command.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"

namespace moesaic {
namespace {

using test::measured;

TEST(StudyModels, RanksShareWholeCopiesOfTheExperts) {
  PointRecord record = measured(4, 5, "32");
  record.job = "layer";
  record.options["job"] = "layer";
  record.options["shape"] = "8x32x16x2";
  record.measurement->replicas = 2;
  StudyModels models(compare_points({record}, std::nullopt));
  const auto obstacle = [&](std::int64_t ranks) {
    return models.obstacle(StudyModels::plan(record, ranks));
  };
  EXPECT_EQ(obstacle(2), "");
  EXPECT_EQ(obstacle(16), "");
  EXPECT_EQ(obstacle(1), "--expert-replicas 2 does not divide the 1 rank");
  EXPECT_EQ(obstacle(7), "--expert-replicas 2 does not divide the 7 ranks");
  EXPECT_EQ(obstacle(18),
            "18 ranks cannot share 8 experts: take at most 16 ranks, or more --expert-replicas");
}

/// Amounts of a point of the demo model, a rank a node if the options say nothing else, by the
/// names of their terms.
std::map<std::string, double> amounts_of(std::int64_t ranks,
                                         std::map<std::string, std::string> options,
                                         std::int64_t threads = 1) {
  PointRecord record = measured(1, 5, "32");
  record.measurement->threads = threads;
  record.measurement->cores = threads;
  record.options = std::move(options);
  record.options["model"] = MOESAIC_TEST_DATA "/demo-model";
  record.options.try_emplace("ranks-per-node", "1");
  StudyModels models(compare_points({record}, std::nullopt));
  const PointPlan plan = StudyModels::plan(record, ranks);
  const PointTerms terms = models.terms(plan);
  const std::vector<double> amounts = terms.amounts(plan, ExpertPopularity::even());
  std::map<std::string, double> named;
  for (std::size_t i = 0; i < amounts.size(); ++i) named[terms.names()[i].name] = amounts[i];
  return named;
}

TEST(PointTerms, RanksWithoutSequencesAddNoWork) {
  for (const char* job : {"prompt", "generate", "sft"}) {
    const auto of = [&](std::int64_t ranks) {
      return amounts_of(ranks, {{"job", job}, {"sequences", "2"}, {"n-prompt", "64"}});
    };
    auto two = of(2);
    auto eight = of(8);
    // Each sequence has its rank: with more of them only the experts' rows are spread further.
    EXPECT_EQ(eight["attention"], two["attention"]) << job;
    EXPECT_EQ(eight["steps"], two["steps"]) << job;
    EXPECT_LT(eight["products.bf16"], two["products.bf16"]) << job;
    // The node of a sequence sends its rows and takes its results, as before.
    EXPECT_LT(eight["link.bytes"], 2.5 * two["link.bytes"]) << job;
  }
}

// Frozen weights have no gradients: back goes one product for each forward, the gradient of its
// input, but for the head of tokens that are not trained.
TEST(PointTerms, FineTuningHasAProductBackForEachForward) {
  auto amounts = amounts_of(2, {{"job", "sft"}, {"sequences", "2"}, {"n-prompt", "64"}});
  EXPECT_GT(amounts["products.bf16.back"], 0.8 * amounts["products.bf16"]);
  EXPECT_LE(amounts["products.bf16.back"], 1.01 * amounts["products.bf16"]);
  auto twice = amounts_of(2, {{"job", "sft"}, {"sequences", "4"}, {"n-prompt", "64"}});
  EXPECT_NEAR(twice["products.bf16.back"] / amounts["products.bf16.back"], 2, 0.05);
  EXPECT_EQ(amounts["steps"], 2) << "a pass forward and one back";
  for (const char* const term : {"adapters", "optimizer", "sums"}) EXPECT_GT(amounts[term], 0);
}

TEST(PointTerms, ThreadsShareWhatIsCountedByCore) {
  for (const char* job : {"prompt", "sft"}) {
    const auto of = [&](std::int64_t threads) {
      return amounts_of(2, {{"job", job}, {"sequences", "2"}, {"n-prompt", "64"}}, threads);
    };
    auto one = of(1);
    auto two = of(2);
    for (const auto& [name, amount] : one) {
      const bool is_by_core = name.starts_with("products.") || name == "weights" ||
                              name == "attention" || name == "rows" || name == "adapters" ||
                              name == "optimizer";
      EXPECT_DOUBLE_EQ(two[name], is_by_core ? amount / 2 : amount) << name << " of " << job;
    }
  }
}

TEST(PointTerms, RowsOfANodeAreMessagesWithTransportMpi) {
  const auto of = [](const char* transport, const char* on_node) {
    return amounts_of(2, {{"n-prompt", "64"},
                          {"sequences", "2"},
                          {"transport", transport},
                          {"ranks-per-node", on_node}});
  };
  auto memory = of("auto", "2");
  auto messages = of("mpi", "2");
  auto nodes = of("auto", "1");
  EXPECT_EQ(memory["link.bytes"], 0);
  EXPECT_GT(memory["node.bytes"], 0);
  EXPECT_EQ(messages["node.bytes"], 0);
  EXPECT_EQ(messages["link.bytes"], nodes["link.bytes"]);
}

TEST(StudyModels, PointsAreOfOneModelThatAreAlikeInAllThatDecidesIt) {
  PointRecord record = measured(1, 5, "32");
  record.options = {{"model", MOESAIC_TEST_DATA "/demo-model"},
                    {"n-prompt", "64"},
                    {"sequences", "2"},
                    {"ranks-per-node", "1"},
                    {"expert-format", "int4_group128"}};
  StudyModels models(compare_points({record}, std::nullopt));
  const auto link_bytes = [&](const char* activations) {
    record.options["int4-activations"] = activations;
    const PointPlan plan = StudyModels::plan(record, 2);
    const PointTerms terms = models.terms(plan);
    const std::vector<double> amounts = terms.amounts(plan, ExpertPopularity::even());
    for (std::size_t i = 0; i < amounts.size(); ++i) {
      if (terms.names()[i].name == "link.bytes") return amounts[i];
    }
    return 0.0;
  };
  const double as_they_are = link_bytes("bf16");
  EXPECT_NE(link_bytes("int8"), as_they_are) << "rows travel as codes";
}

TEST(PointTerms, ARankRunsOnePromptAtATime) {
  const auto steps = [](const char* batch) {
    return amounts_of(2, {{"sequences", "5"}, {"n-prompt", "48"}, {"batch-size", batch}})["steps"];
  };
  EXPECT_EQ(steps("512"), 3);
  EXPECT_EQ(steps("32"), 3 * 2);
}

TEST(StudyPredict, TellsNoExchangesOfARankAlone) {
  const test::TemporaryDirectory out;
  const std::string config = out.path_of("study.ini");
  std::string batches;
  std::vector<std::string> ids;
  const PointPlace place(out.path());
  place.make();
  for (int rows = 16; rows <= 64; ++rows) {
    const std::string batch = std::to_string(rows);
    // Of weights, rows and passes, none of which is the least that the others leave.
    const double passes = std::ceil(4096.0 / rows);
    PointRecord record = measured(1, 0.01 + 3e-4 * passes + 1e-6 * (rows % 7), batch);
    record.options["model"] = MOESAIC_TEST_DATA "/demo-model";
    record.options["n-prompt"] = "4096";
    test::write_text(place.file(record.id), point_record_json(record));
    batches += (batches.empty() ? "" : ",") + batch;
    ids.push_back(record.id);
  }
  test::write_text(config, "out = " + out.path() +
                               "\nranks = 1\nsequences = 4\ntext = random\nn-prompt = 4096\n" +
                               "model = " MOESAIC_TEST_DATA "/demo-model\nbatch-size = " + batches +
                               "\n");
  (void)write_results(read_study(config), ids);
  ASSERT_EQ(run_study_predict(
                test::parse({"study", "predict", config, "--ranks", "1", "--log-level", "error"})),
            0);
  const std::vector<Prediction> predictions = read_predictions(out.path());
  ASSERT_EQ(predictions.size(), ids.size());
  for (const Prediction& told : predictions) {
    EXPECT_GT(told.compute_seconds, 0);
    EXPECT_EQ(told.exchange_seconds, 0) << told.group;
    EXPECT_FALSE(std::signbit(told.exchange_seconds)) << told.group;
  }
}

TEST(StudyPredict, TellsNoEndOfARateWhoseTimeMayBeNone) {
  const test::TemporaryDirectory out;
  test::write_text(
      out.path_of("model.json"),
      R"({"predictions":[{"group":"","ranks":4,"nodes":2,"tokens_per_second":5.5,"low":2,)"
      R"("high":null,"far":false,"phases":{"compute_s":0,"exchange_s":1,"steps_s":0}}]})");
  const std::vector<Prediction> predictions = read_predictions(out.path());
  ASSERT_EQ(predictions.size(), 1U);
  EXPECT_EQ(predictions[0].tokens_per_second.low, 2);
  EXPECT_EQ(predictions[0].tokens_per_second.value, 5.5);
  EXPECT_TRUE(std::isinf(predictions[0].tokens_per_second.high));
}

}  // namespace
}  // namespace moesaic
