#include "launch/input/sampling_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace moesaic {
namespace {

enum class Origin { model, given, drawn, standard };
constexpr std::array<std::string_view, 4> kOriginNames = {"generation_config.json", "given",
                                                          "drawn", "default"};

/// Which settings the banner tells.
enum class Told { always, if_not_standard, never };

class Chooser {
 public:
  explicit Chooser(const Command& command) : command_(command) {}

  /// The value of an option, unless nobody has given it and the model has another one.
  template <typename Value>
  Value choose(std::string_view option, Value value, const std::optional<Value>& of_model,
               Told told) {
    Origin origin = Origin::standard;
    if (source_of(command_, option) != OptionSource::preset) {
      origin = Origin::given;
    } else if (of_model) {
      origin = Origin::model;
      value = *of_model;
    }
    tell(option, fmt::format("{}", value), origin, told);
    return value;
  }
  /// --seed, or one that is drawn for -1.
  std::uint64_t choose_seed(std::int64_t seed, Told told) {
    if (seed >= 0) return static_cast<std::uint64_t>(choose<std::int64_t>("seed", seed, {}, told));
    const std::uint64_t drawn = seed_of(seed);
    tell("seed", fmt::format("{}", drawn), Origin::drawn, told);
    return drawn;
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < told_.size(); ++i) {
      if (told_[i].empty()) continue;
      text +=
          fmt::format("{}{} ({})", text.empty() ? "sampling: " : "; ", told_[i], kOriginNames[i]);
    }
    return text;
  }

 private:
  void tell(std::string_view option, std::string_view value, Origin origin, Told told) {
    const bool always = told == Told::always;
    if (!always && (told == Told::never || origin == Origin::standard)) return;
    std::string& list = told_[static_cast<std::size_t>(origin)];
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ", option, value);
  }

  const Command& command_;
  std::array<std::string, kOriginNames.size()> told_;  // [Origin]
};

void choose_limits(Chooser& chooser, const Options& options, const GenerationDefaults& defaults,
                   SamplingOptions& sampling) {
  const bool is_greedy = defaults.do_sample && !*defaults.do_sample;
  sampling.temperature = chooser.choose(
      "temp", options.temp, is_greedy ? std::optional(0.0) : defaults.temperature, Told::always);
  const bool draws = sampling.temperature > 0;
  const Told told = draws ? Told::always : Told::never;
  sampling.top_k = chooser.choose("top-k", options.top_k, defaults.top_k, told);
  sampling.top_p = chooser.choose("top-p", options.top_p, defaults.top_p, told);
  sampling.min_p = chooser.choose("min-p", options.min_p, defaults.min_p,
                                  draws ? Told::if_not_standard : Told::never);
  sampling.seed = chooser.choose_seed(options.seed, told);
}

void choose_penalties(Chooser& chooser, const Options& options, const GenerationDefaults& defaults,
                      SamplingOptions& sampling) {
  const Told told = Told::if_not_standard;
  sampling.repetition_penalty =
      chooser.choose("repeat-penalty", options.repeat_penalty, defaults.repetition_penalty, told);
  sampling.frequency_penalty =
      chooser.choose<double>("frequency-penalty", options.frequency_penalty, {}, told);
  sampling.presence_penalty =
      chooser.choose<double>("presence-penalty", options.presence_penalty, {}, told);
  sampling.penalty_last_n =
      chooser.choose<std::int64_t>("repeat-last-n", options.repeat_last_n, {}, told);
}

}  // namespace

std::uint64_t seed_of(std::int64_t seed) {
  return seed < 0 ? std::random_device()() : static_cast<std::uint64_t>(seed);
}

std::string sampling_json(const SamplingOptions& sampling) {
  std::map<std::int32_t, float> sums;
  for (const auto& [token, added] : sampling.logit_bias) sums[token] += added;
  JsonWriter bias;
  for (const auto& [token, sum] : sums) {
    const std::string key = fmt::format("{}", token);
    if (std::isfinite(sum)) {
      bias.field(key, static_cast<double>(sum));
    } else {
      bias.field(key, "-inf");
    }
  }
  return JsonWriter()
      .field("temperature", sampling.temperature)
      .field("top_k", sampling.top_k)
      .field("top_p", sampling.top_p)
      .field("min_p", sampling.min_p)
      .field("repetition_penalty", sampling.repetition_penalty)
      .field("frequency_penalty", sampling.frequency_penalty)
      .field("presence_penalty", sampling.presence_penalty)
      .field("repeat_last_n", sampling.penalty_last_n)
      .raw_field("logit_bias", bias.text())
      .raw_field("seed", fmt::format("{}", sampling.seed))
      .text();
}

LogitBias parse_logit_bias(std::string_view text) {
  LogitBias bias;
  const char* const end = text.data() + text.size();
  const auto [sign, token_error] = std::from_chars(text.data(), end, bias.token);
  const bool has_sign = token_error == std::errc() && sign != end && (*sign == '+' || *sign == '-');
  const char* const number = has_sign && *sign == '+' ? sign + 1 : sign;
  const auto [stop, error] = std::from_chars(number, end, bias.bias);
  require(
      has_sign && error == std::errc() && stop == end && !(*sign == '+' && *number == '-'),
      ErrorKind::usage,
      "--logit-bias: \"{}\" is not a token's id and what is added, such as 15043+1 or 29905-inf",
      text);
  return bias;
}

SamplingChoice choose_sampling(const Command& command, const GenerationDefaults& defaults,
                               std::int64_t vocab_size) {
  Chooser chooser(command);
  SamplingChoice choice;
  choose_limits(chooser, command.options, defaults, choice.options);
  choose_penalties(chooser, command.options, defaults, choice.options);
  for (const std::string& bias : command.options.logit_bias) {
    const std::int64_t token = choice.options.logit_bias.emplace_back(parse_logit_bias(bias)).token;
    require(token >= 0 && token < vocab_size, ErrorKind::usage,
            "--logit-bias {}: token {} is outside the model's vocabulary of {}", bias, token,
            vocab_size);
  }
  check_sampling(choice.options, vocab_size);
  require(std::ranges::find(command.options.stop, "") == command.options.stop.end(),
          ErrorKind::usage, "--stop \"\": an empty text would end every text");
  choice.text = chooser.text();
  return choice;
}

}  // namespace moesaic
