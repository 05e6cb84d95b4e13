// What a user says about steps, rates and the optimizer of moesaic sft arrives where it counts.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/launch/sft_program.h"

namespace moesaic::test {
namespace {

/// The options of a golden training, as a user writes them.
Arguments options_of(const Json& training) {
  const auto number = [&](const std::string& key) {
    return fmt::format("{}", training.at(key).as_double());
  };
  return {"--max-steps",
          number("steps"),
          "--lr",
          number("lr"),
          "--schedule",
          training.at("schedule").as_string(),
          "--warmup-steps",
          number("warmup_steps"),
          "--beta1",
          number("beta1"),
          "--beta2",
          number("beta2"),
          "--adam-eps",
          number("adam_eps"),
          "--weight-decay",
          number("weight_decay"),
          "--clip",
          number("clip"),
          "--global-batch-size",
          number("samples_per_step")};
}

/// A list of ids, of the I64 that goldens have.
std::string ids_of(const TensorView& tensor) {
  std::vector<std::int64_t> ids(tensor.bytes.size() / sizeof(std::int64_t));
  std::memcpy(ids.data(), tensor.bytes.data(), tensor.bytes.size());
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

std::string lines_of_samples(const SafetensorsFile& golden, std::int64_t samples) {
  std::string lines;
  for (std::int64_t s = 0; s < samples; ++s) {
    lines += fmt::format("{{\"input_ids\": {}, \"labels\": {}}}\n",
                         ids_of(*golden.find(fmt::format("input_ids.{}", s))),
                         ids_of(*golden.find(fmt::format("labels.{}", s))));
  }
  return lines;
}

/// How far the adapter of `out` is from the golden's last one, by the way that it came.
double distance_to_final(const std::string& out, const std::string& start,
                         const SafetensorsFile& golden) {
  const SafetensorsFile first = SafetensorsFile::open(start + "/adapter_model.safetensors");
  const SafetensorsFile last = SafetensorsFile::open(out + "/adapter_model.safetensors");
  EXPECT_EQ(last.tensors().size(), first.tensors().size());
  double difference = 0;
  double way = 0;
  for (const TensorView& tensor : last.tensors()) {
    const std::vector<float> found = numbers(tensor);
    const std::vector<float> wanted = numbers(*golden.find("final." + tensor.name));
    const std::vector<float> before = numbers(*first.find(tensor.name));
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
      way += std::pow(static_cast<double>(wanted[i]) - before[i], 2);
    }
  }
  return std::sqrt(difference / way);
}

TEST(SftOptions, TwentyStepsOfTheProgramAreThoseOfTorch) {
  const TemporaryDirectory directory;
  for (const std::string name : {"qwen3_moe", "qwen2_moe-rslora-idle"}) {
    const std::string folder = kData + "/adapters/" + name;
    const Json json = Json::read_file(folder + "/golden.json");
    const SafetensorsFile golden = SafetensorsFile::open(folder + "/golden.safetensors");
    const std::string data = directory.path_of("data.jsonl");
    write_text(data, lines_of_samples(golden, json.at("samples").as_int()));
    const Arguments exact = {"--lora", folder,        "--no-shuffle", "--data-format",
                             "tokens", "--precision", "fp32",         "--overwrite"};
    for (const int ranks : {1, 2}) {
      const std::string out = directory.path_of(name + std::to_string(ranks));
      const Arguments model = {"-m", kData + "/models/" + json.at("model").as_string()};
      const Arguments run = {"sft", "--data", data, "-o", out, "--threads", "1"};
      expect_done(run_ranks(
          ranks, joined(joined(run, model), joined(exact, options_of(json.at("training"))))));
      const std::vector<Json> steps = events(out, "step");
      const std::vector<float> losses = numbers(*golden.find("losses"));
      const std::vector<float> norms = numbers(*golden.find("grad_norms"));
      const std::vector<float> rates = numbers(*golden.find("learning_rates"));
      ASSERT_EQ(steps.size(), losses.size());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        EXPECT_NEAR(steps[i].at("loss").as_double(), losses[i], 1e-4 * losses[i]) << name << i;
        EXPECT_NEAR(steps[i].at("grad_norm").as_double(), norms[i], 1e-3 * norms[i]) << name << i;
        EXPECT_NEAR(steps[i].at("lr").as_double(), rates[i], 1e-6 * rates[i]) << name << i;
      }
      EXPECT_LT(distance_to_final(out, folder, golden), 1e-3) << name;
    }
  }
}

/// Tensors of a file by the factor that they are, "lora_A" or "lora_B", one after the other.
std::vector<float> factors(const std::string& file, const std::string& factor) {
  std::vector<float> all;
  const SafetensorsFile tensors = SafetensorsFile::open(file);
  for (const TensorView& tensor : tensors.tensors()) {
    if (tensor.name.find(factor) == std::string::npos) continue;
    const std::vector<float> its = numbers(tensor);
    all.insert(all.end(), its.begin(), its.end());
  }
  EXPECT_FALSE(all.empty());
  return all;
}

/// The largest difference of two lists.
double farthest(const std::vector<float>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  return most;
}

// While B is zero A has no gradient: the first step shrinks A alone, and moves B alone.
TEST(SftOptions, AFirstStepIsThatOfItsRateDecayEpsilonAndClipping) {
  constexpr double kRate = 0.25;
  constexpr double kDecay = 0.2;
  constexpr double kEpsilon = 0.0004;
  constexpr double kClip = 0.02;
  const TemporaryDirectory directory;
  const std::string plain = directory.path_of("plain");
  const std::string out = directory.path_of("out");
  const std::string gradients = directory.path_of("gradients.safetensors");
  expect_done(run_moesaic(sft(plain, {"--max-steps", "1"})));
  expect_done(
      run_moesaic(sft(out, {"--max-steps", "1", "--lr", fmt::format("{}", kRate), "--weight-decay",
                            fmt::format("{}", kDecay), "--adam-eps", fmt::format("{}", kEpsilon),
                            "--clip", fmt::format("{}", kClip), "--grad-out", gradients})));
  const std::string file = "/adapter_model.safetensors";
  std::vector<double> a;
  for (const float value : factors(plain + file, "lora_A"))
    a.push_back(value * (1 - kRate * kDecay));
  EXPECT_LT(farthest(factors(out + file, "lora_A"), a), 1e-6);
  const double norm = events(out, "step").front().at("grad_norm").as_double();
  ASSERT_GT(norm, 2 * kClip);
  std::vector<double> b;
  for (const float gradient : factors(gradients, "lora_B")) {
    const double clipped = gradient * kClip / (norm + 1e-6);
    b.push_back(-kRate * clipped / (std::abs(clipped) + kEpsilon));
  }
  EXPECT_LT(farthest(factors(out + file, "lora_B"), b), 1e-4 * kRate);
}

// At a low rate the second step's gradient is the one that its sample has at the start.
TEST(SftOptions, ASecondStepIsThatOfTheTwoDecaysOfMoments) {
  constexpr double kRate = 1e-6;
  constexpr double kEpsilon = 1e-4;
  constexpr double kBeta1 = 0.3;
  constexpr double kBeta2 = 0.6;
  const TemporaryDirectory directory;
  const std::vector<std::string> samples = lines_of(read_text(kConversations));
  const auto run = [&](const std::string& name, std::size_t first, std::size_t second) {
    const std::string data = directory.path_of("data.jsonl");
    write_text(data, samples.at(first) + "\n" + samples.at(second) + "\n");
    const std::string out = directory.path_of(name);
    expect_done(run_moesaic(sft(out,
                                {"--no-shuffle",
                                 "--global-batch-size",
                                 "1",
                                 "--max-steps",
                                 "2",
                                 "--precision",
                                 "fp32",
                                 "--schedule",
                                 "constant",
                                 "--clip",
                                 "0",
                                 "--lr",
                                 fmt::format("{}", kRate),
                                 "--adam-eps",
                                 fmt::format("{}", kEpsilon),
                                 "--beta1",
                                 fmt::format("{}", kBeta1),
                                 "--beta2",
                                 fmt::format("{}", kBeta2),
                                 "--grad-out",
                                 out + ".gradients"},
                                data)));
    return out;
  };
  const std::string out = run("out", 0, 1);
  const std::vector<float> first = factors(out + ".gradients", "lora_B");
  const std::vector<float> second = factors(run("turned", 1, 0) + ".gradients", "lora_B");
  std::vector<double> b;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double g1 = first[i];
    const double g2 = second[i];
    const double mean = (kBeta1 * g1 + g2) * (1 - kBeta1) / (1 - kBeta1 * kBeta1);
    const double square = (kBeta2 * g1 * g1 + g2 * g2) * (1 - kBeta2) / (1 - kBeta2 * kBeta2);
    b.push_back(-kRate * (g1 / (std::abs(g1) + kEpsilon) + mean / (std::sqrt(square) + kEpsilon)));
  }
  EXPECT_LT(farthest(factors(out + "/adapter_model.safetensors", "lora_B"), b), 1e-2 * kRate);
}

TEST(SftOptions, SchedulesAndWarmUpAreTheRatesOfTheSteps) {
  const TemporaryDirectory directory;
  const std::vector<std::pair<std::string, std::vector<double>>> cases = {
      {"cosine", {0, 0.5, 1, 0.75, 0.25}},
      {"linear", {0, 0.5, 1, 2.0 / 3, 1.0 / 3}},
      {"constant", {0, 0.5, 1, 1, 1}}};
  for (const auto& [schedule, shares] : cases) {
    const std::string out = directory.path_of(schedule);
    expect_done(run_moesaic(sft(out, {"--max-steps", "5", "--global-batch-size", "1", "--lr",
                                      "0.008", "--warmup-steps", "2", "--schedule", schedule})));
    const std::vector<Json> steps = events(out, "step");
    ASSERT_EQ(steps.size(), shares.size());
    for (std::size_t i = 0; i < shares.size(); ++i) {
      EXPECT_NEAR(steps[i].at("lr").as_double(), 0.008 * shares[i], 1e-9) << schedule << i;
    }
  }
}

TEST(SftOptions, TheSeedIsThatOfTheOrderAndOfNewAdapters) {
  const TemporaryDirectory directory;
  const std::string data = directory.path_of("data.jsonl");
  std::vector<std::int64_t> in_file;
  std::string lines;
  for (std::int64_t length = 2; length < 8; ++length) {  // which tells the samples
    in_file.push_back(length);
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(length), 9);
    lines += fmt::format("{{\"input_ids\": [{0}], \"labels\": [{0}]}}\n", fmt::join(ids, ", "));
  }
  write_text(data, lines);
  const auto order = [&](const std::string& name, const Arguments& more) {
    const std::string out = directory.path_of(name);
    expect_done(run_moesaic(sft(
        out, joined({"--global-batch-size", "1", "--lr", "0", "--max-steps", "6"}, more), data)));
    std::vector<std::int64_t> lengths;
    for (const Json& step : events(out, "step")) lengths.push_back(step.at("tokens").as_int());
    return lengths;
  };
  EXPECT_EQ(order("plain", {"--no-shuffle", "--seed", "1"}), in_file);
  EXPECT_EQ(order("other", {"--no-shuffle", "--seed", "2"}), in_file);
  EXPECT_NE(adapter(directory.path_of("other")), adapter(directory.path_of("plain")));
  std::set<std::vector<std::int64_t>> orders;
  for (const std::string seed : {"1", "2", "3"}) {
    std::vector<std::int64_t> lengths = order("seed" + seed, {"--seed", seed});
    orders.insert(lengths);
    std::ranges::sort(lengths);
    EXPECT_EQ(lengths, in_file) << "an epoch has each once";
  }
  EXPECT_GT(orders.size(), 1U);
  EXPECT_EQ(adapter(directory.path_of("seed1")), adapter(directory.path_of("plain")))
      << "at a rate of 0 it stays as it was made";
}

}  // namespace
}  // namespace moesaic::test
