// The numbers in metrics.jsonl, and the curves of loss.svg, against what follows from the data and
// from the router of a model that does nothing but route.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "tests/launch/sft_program.h"
#include "tests/support/model_copies.h"

namespace moesaic::test {
namespace {

/// Numbers of bf16.
std::vector<double> values_of(const SafetensorsFile& file, const std::string& name) {
  const TensorView& tensor = *file.find(name);
  EXPECT_EQ(tensor.dtype, DType::bf16) << name;
  std::vector<std::uint16_t> bits(tensor.bytes.size() / 2);
  std::memcpy(bits.data(), tensor.bytes.data(), tensor.bytes.size());
  std::vector<double> values;
  for (const std::uint16_t each : bits) {
    values.push_back(static_cast<double>(std::bit_cast<float>(std::uint32_t{each} << 16)));
  }
  return values;
}

/// What a token's router says in a layer: probabilities, and the experts by their place, the most
/// probable one first.
struct Choice {
  std::vector<double> probabilities;
  std::vector<std::size_t> experts;
};

constexpr std::size_t kExperts = 16;
constexpr std::size_t kChosen = 4;
constexpr std::size_t kLayers = 5;
constexpr std::size_t kHidden = 192;

/// The demo model, whose layers add nothing to the embedding of a token.
class RoutingModel {
 public:
  explicit RoutingModel(const std::string& directory) : directory_(directory) {
    copy_model("demo-model", directory);
    const SafetensorsFile file = SafetensorsFile::open(directory + "/model.safetensors");
    embedding_ = values_of(file, "model.embed_tokens.weight");
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      norms_.push_back(values_of(file, prefix + "post_attention_layernorm.weight"));
      routers_.push_back(values_of(file, prefix + "mlp.gate.weight"));
    }
    std::string bytes = read_text(file.path());
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    const std::byte* const data = file.tensors().front().bytes.data();
    for (const TensorView& tensor : file.tensors()) {
      if (!tensor.name.ends_with("o_proj.weight") && !tensor.name.ends_with("down_proj.weight")) {
        continue;
      }
      const auto at = static_cast<std::ptrdiff_t>(8 + header) + (tensor.bytes.data() - data);
      std::fill_n(bytes.begin() + at, tensor.bytes.size(), '\0');
    }
    write_text(directory + "/model.safetensors", bytes);
  }

  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  [[nodiscard]] Choice choice(std::size_t layer, std::int64_t token) const {
    const double* const row = &embedding_[static_cast<std::size_t>(token) * kHidden];
    const double squares = std::inner_product(row, row + kHidden, row, 0.0);
    const double scale = 1 / std::sqrt(squares / kHidden + 1e-6);
    Choice choice;
    for (std::size_t expert = 0; expert < kExperts; ++expert) {
      double logit = 0;
      for (std::size_t i = 0; i < kHidden; ++i) {
        logit += routers_[layer][expert * kHidden + i] * row[i] * scale * norms_[layer][i];
      }
      choice.probabilities.push_back(std::exp(logit));
    }
    const double sum =
        std::accumulate(choice.probabilities.begin(), choice.probabilities.end(), 0.0);
    for (double& probability : choice.probabilities) probability /= sum;
    choice.experts.resize(kExperts);
    std::iota(choice.experts.begin(), choice.experts.end(), 0);
    std::ranges::sort(choice.experts, std::greater(),
                      [&](std::size_t expert) { return choice.probabilities[expert]; });
    choice.experts.resize(kChosen);
    return choice;
  }

 private:
  std::string directory_;
  std::vector<double> embedding_;             // [tokens, hidden]
  std::vector<std::vector<double>> norms_;    // [layers] [hidden]
  std::vector<std::vector<double>> routers_;  // [layers] [experts, hidden]
};

using Tokens = std::vector<std::int64_t>;

/// All layers of all tokens, as load_balancing_loss_func of transformers joins them.
std::vector<Choice> choices_of(const RoutingModel& model, const std::vector<Tokens>& samples) {
  std::vector<Choice> all;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (const Tokens& sample : samples) {
      for (const std::int64_t token : sample) all.push_back(model.choice(layer, token));
    }
  }
  return all;
}

/// As it is written there: sum(mean(expert_mask, 0) * mean(routing_weights, 0)) * num_experts.
double naive_balance_loss(const std::vector<Choice>& choices) {
  const auto count = static_cast<double>(choices.size());
  double sum = 0;
  for (std::size_t place = 0; place < kChosen; ++place) {
    for (std::size_t expert = 0; expert < kExperts; ++expert) {
      double tokens = 0;
      double probability = 0;
      for (const Choice& choice : choices) {
        tokens += choice.experts[place] == expert ? 1 : 0;
        probability += choice.probabilities[expert];
      }
      sum += tokens / count * (probability / count);
    }
  }
  return sum * kExperts;
}

/// Rows of the fullest rank by their mean, where `rank_of` says whose an expert is.
double naive_load(const std::vector<Choice>& choices, int ranks,
                  const std::function<int(std::size_t expert)>& rank_of) {
  std::vector<double> rows(static_cast<std::size_t>(ranks));
  for (const Choice& choice : choices) {
    for (const std::size_t expert : choice.experts) {
      ++rows[static_cast<std::size_t>(rank_of(expert))];
    }
  }
  return *std::ranges::max_element(rows) * ranks / std::accumulate(rows.begin(), rows.end(), 0.0);
}

/// Lines of samples whose first `untrained` tokens are not trained.
std::string lines_of_tokens(const std::vector<Tokens>& samples, std::size_t untrained) {
  std::string lines;
  for (const Tokens& sample : samples) {
    Tokens labels = sample;
    std::fill_n(labels.begin(), untrained, -100);
    lines += fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", fmt::join(sample, ", "),
                         fmt::join(labels, ", "));
  }
  return lines;
}

const std::vector<Tokens> kSamples = {{5, 900, 17, 1300, 44, 2},
                                      {800, 3, 77},
                                      {1999, 6, 7, 8, 1000, 444, 31, 32},
                                      {12, 13, 14},
                                      {1500, 1501, 1502, 60}};

class SftMetrics : public testing::Test {
 protected:
  /// Steps of two samples, at a rate at which the adapter stays what it was: nothing.
  [[nodiscard]] Arguments run(const Arguments& more = {}) const {
    const Arguments still = {"-m",
                             model_.directory(),
                             "--global-batch-size",
                             "2",
                             "--no-shuffle",
                             "--precision",
                             "fp32",
                             "--lr",
                             "1e-30",
                             "--weight-decay",
                             "0",
                             "--overwrite"};
    return with_steps("7", sft(out_, joined(still, more), data_));
  }

  TemporaryDirectory directory_;
  std::string out_ = directory_.path_of("out");
  std::string data_ = directory_.path_of("data.jsonl");
  RoutingModel model_{directory_.path_of("model")};
};

TEST_F(SftMetrics, StepsTellOfTheirSamplesAndOfWhatTheRoutersChoseOfThem) {
  write_text(data_, lines_of_tokens(kSamples, 2));
  const std::map<std::string, std::function<int(std::size_t, int)>> placements = {
      {"contiguous",
       [](std::size_t expert, int ranks) {
         return static_cast<int>(expert / (kExperts / static_cast<std::size_t>(ranks)));
       }},
      {"round_robin", [](std::size_t expert, int ranks) {
         return static_cast<int>(expert % static_cast<std::size_t>(ranks));
       }}};
  for (const auto& [placement, rank_of] : placements) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(placement + " on " + std::to_string(ranks));
      expect_done(run_ranks(ranks, run({"--placement", placement})));
      const std::vector<Json> steps = events(out_, "step");
      ASSERT_EQ(steps.size(), 7U);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Json& step = steps[i];
        std::vector<Tokens> samples;  // three steps are an epoch, the last of which has one sample
        for (std::size_t s = i % 3 * 2; s < std::min(i % 3 * 2 + 2, kSamples.size()); ++s) {
          samples.push_back(kSamples[s]);
        }
        std::int64_t tokens = 0;
        for (const Tokens& sample : samples) tokens += std::ssize(sample);
        EXPECT_EQ(step.at("step").as_int(), static_cast<std::int64_t>(i) + 1);
        EXPECT_NEAR(step.at("epoch").as_double(), static_cast<double>(i + 1) / 3, 1e-5);
        EXPECT_EQ(step.at("samples").as_int(), std::ssize(samples));
        EXPECT_EQ(step.at("tokens").as_int(), tokens);
        EXPECT_EQ(step.at("trained_tokens").as_int(), tokens - 2 * std::ssize(samples));
        const std::vector<Choice> choices = choices_of(model_, samples);
        EXPECT_NEAR(step.at("balance_loss").as_double(), naive_balance_loss(choices), 1e-5) << i;
        const auto owner = [&place = rank_of, ranks](std::size_t expert) {
          return place(expert, ranks);
        };
        EXPECT_NEAR(step.at("load_max_over_mean").as_double(), naive_load(choices, ranks, owner),
                    1e-5)
            << i;
      }
    }
  }
}

TEST_F(SftMetrics, TimesAndMemoryAreThoseOfARun) {
  write_text(data_, lines_of_tokens(kSamples, 1));
  const std::string held_out = directory_.path_of("held-out.jsonl");
  write_text(held_out, lines_of_tokens({{1, 2, 3, 4}, {5, 6, 7}}, 2));
  for (const int ranks : {1, 2}) {
    const ProgramResult result =
        run_ranks(ranks, run({"--eval-data", held_out, "--save-every", "3"}));
    expect_done(result);
    const Json start = events(out_, "start").at(0);
    EXPECT_EQ(start.at("total_steps").as_int(), 7);
    EXPECT_EQ(start.at("samples").as_int(), 5);
    EXPECT_EQ(start.at("held_out_samples").as_int(), 2);
    EXPECT_EQ(start.at("tokens").as_int(), 24);
    EXPECT_EQ(start.at("trained_tokens").as_int(), 19);
    EXPECT_EQ(start.at("ranks").as_int(), ranks);
    double all = 0;
    for (const Json& step : events(out_, "step")) {
      const double seconds = step.at("seconds").as_double();
      const auto tokens = static_cast<double>(step.at("tokens").as_int());
      EXPECT_GT(seconds, 0);
      EXPECT_NEAR(step.at("tokens_per_second").as_double() * seconds, tokens, 1e-4 * tokens);
      EXPECT_GE(step.at("wait_seconds").as_double(), 0);
      EXPECT_LE(step.at("wait_seconds").as_double(), seconds);
      all += seconds;
    }
    for (const char* const kind : {"eval", "save"}) {
      for (const Json& event : events(out_, kind)) {
        if (event.at("step").as_int() == 0) continue;  // before the clock of the run starts
        EXPECT_GT(event.at("seconds").as_double(), 0) << kind;
        all += event.at("seconds").as_double();
      }
    }
    for (const Json& eval : events(out_, "eval")) {
      EXPECT_EQ(eval.at("trained_tokens").as_int(), 3);
    }
    const Json end = events(out_, "end").at(0);
    EXPECT_EQ(end.at("step").as_int(), 7);
    EXPECT_GE(end.at("seconds").as_double(), all * (1 - 1e-4));
    EXPECT_LE(end.at("seconds").as_double(), result.seconds);
    rusage used{};
    ::getrusage(RUSAGE_CHILDREN, &used);
    const auto model_bytes =
        static_cast<std::int64_t>(std::filesystem::file_size(kDemo + "/model.safetensors"));
    const std::int64_t peak = end.at("peak_bytes").as_int();
    EXPECT_EQ(end.at("peak_bytes_max").as_int(), peak);
    EXPECT_GT(end.at("peak_bytes_min").as_int(), model_bytes / ranks);
    EXPECT_GE(peak, end.at("peak_bytes_min").as_int());
    const double most = static_cast<double>(used.ru_maxrss) * 1024;  // of any child, about
    EXPECT_LE(static_cast<double>(peak), 1.1 * most);
    const std::int64_t node = end.at("node_peak_bytes").as_int();  // of all ranks
    EXPECT_GT(node, ranks == 1 ? peak - 1 : peak + model_bytes / ranks);
    EXPECT_LE(node, ranks * peak);
  }
}

TEST_F(SftMetrics, TheLastLineSaysHowARunEnded) {
  write_text(data_, lines_of_tokens(kSamples, 1));
  const auto reasons = [&] {
    std::vector<std::string> found;
    for (const Json& end : events(out_, "end")) found.push_back(end.at("reason").as_string());
    return found;
  };
  using Reasons = std::vector<std::string>;
  expect_done(run_moesaic(run()));
  EXPECT_EQ(reasons(), Reasons{"done"});
  const Arguments endless = with_steps("100000", run());
  std::filesystem::remove_all(out_);
  {
    RunningProgram program(moesaic_command(endless));
    ASSERT_TRUE(program.wait_until([&] {
      return std::filesystem::exists(out_ + "/metrics.jsonl") && !events(out_, "step").empty();
    }));
    write_text(out_ + "/stop", "");
    EXPECT_EQ(program.wait().exit_code, 6);
  }
  EXPECT_EQ(reasons(), Reasons{"interrupted"});
  EXPECT_EQ(run_moesaic(joined(endless, {"--max-time", "1s"})).exit_code, 6);
  EXPECT_EQ(reasons(), Reasons{"interrupted"});
  expect_failure(run_moesaic(run({"--lora-alpha", "1000000", "--lora-rank", "1", "--lr", "0.003"})),
                 3, {"not finite"});
  EXPECT_EQ(reasons(), Reasons{}) << "after an error there is none";
}

/// The points of a curve, in the order of the picture's curves.
std::vector<std::pair<double, double>> points_of(const std::string& svg, std::size_t curve) {
  std::size_t at = 0;
  for (std::size_t i = 0; i <= curve; ++i) at = svg.find("<polyline", at + 1);
  EXPECT_NE(at, std::string::npos);
  const std::size_t begin = svg.find("points=\"", at) + 8;
  std::istringstream text(svg.substr(begin, svg.find('"', begin) - begin));
  std::vector<std::pair<double, double>> points;
  char comma = 0;
  for (double x = 0, y = 0; text >> x >> comma >> y;) points.emplace_back(x, y);
  return points;
}

// An exponential mean of 0.9 that is corrected for its start: of all losses so far, each with 0.9
// of the weight of the one behind it.
TEST(SftCurves, TheSmoothedOneIsTheMeanOfTheLossesSoFar) {
  const TemporaryDirectory directory;
  const std::string out = directory.path_of("out");
  expect_done(run_moesaic(with_steps("20", sft(out, {"--eval-split", "6", "--eval-every", "5"}))));
  const auto found = losses(out, "step");
  const auto held_out = losses(out, "eval");
  const std::string svg = read_text(out + "/loss.svg");
  const auto raw = points_of(svg, 0);
  const auto smoothed = points_of(svg, 1);
  const auto held_out_points = points_of(svg, 2);
  ASSERT_EQ(raw.size(), found.size());
  ASSERT_EQ(smoothed.size(), found.size());
  ASSERT_EQ(held_out_points.size(), held_out.size());
  // The scale, of the points that are farthest from each other.
  const auto by_loss = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto low =
      static_cast<std::size_t>(std::ranges::min_element(found, by_loss) - found.begin());
  const auto high =
      static_cast<std::size_t>(std::ranges::max_element(found, by_loss) - found.begin());
  const double scale =
      (raw[high].second - raw[low].second) / (found[high].second - found[low].second);
  EXPECT_LT(scale, -10) << "pixels go down";
  const auto pixel = [&](double loss) {
    return raw[low].second + scale * (loss - found[low].second);
  };
  double sum = 0;
  double weights = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    sum = 0.9 * sum + found[i].second;
    weights = 0.9 * weights + 1;
    EXPECT_NEAR(raw[i].second, pixel(found[i].second), 0.2) << i;
    EXPECT_NEAR(smoothed[i].second, pixel(sum / weights), 0.2) << i;
    EXPECT_EQ(smoothed[i].first, raw[i].first) << i;
  }
  for (std::size_t i = 0; i < held_out.size(); ++i) {
    EXPECT_NEAR(held_out_points[i].second, pixel(held_out[i].second), 0.2) << i;
  }
}

}  // namespace
}  // namespace moesaic::test
