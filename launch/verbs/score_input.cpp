#include "launch/verbs/score_input.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/counted.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text_lines.h"
#include "launch/input/prompts.h"
#include "launch/input/reading.h"
#include "launch/input/request_fields.h"
#include "launch/input/token_prompts.h"
#include "src/train/sample_maker.h"
#include "src/train/sample_set.h"

namespace moesaic {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kWholeFileHint =
    "--whole-file: the file is one text, though it begins with {";

/// Reads on rank 0 what the files hold.
class Reader {
 public:
  Reader(const Runtime& runtime, const OpenModel& model, const ReadProgress& reading,
         ScoreInput& input)
      : options_(runtime.options()),
        config_(model.config),
        directory_(model.files.directory()),
        reading_(reading),
        input_(input) {
    tools_.vocab_size = config_.vocab_size;
    limit_ = context_of(options_, config_);
    require(options_.ctx_size != 1, ErrorKind::usage,
            "--ctx-size 1 leaves nothing to predict: a window has at least 2 tokens");
    stride_ = options_.stride > 0 ? options_.stride : std::max<std::int64_t>(limit_.tokens / 2, 1);
    require(stride_ <= limit_.tokens, ErrorKind::usage, "--stride {} exceeds the context of {}",
            stride_, limit_.tokens);
  }

  void read(const std::string& path) {
    const std::string name = input_name(path);
    const std::string text = read_utf8_file(path, [&] { reading_(0, 1); });
    const std::size_t first = text.find_first_not_of(kSpaces);
    if (!options_.whole_file && first != std::string_view::npos && text[first] == '{') {
      read_lines(text, name);
    } else {
      add_text({.where = name, .id = "", .is_pair = false}, encode(text, name));
    }
  }

  /// The model's, which lines of ids alone do without.
  const Tokenizer& tokenizer() {
    if (!input_.tokenizer) input_.tokenizer = Tokenizer::from_directory(directory_);
    return *input_.tokenizer;
  }

 private:
  void read_lines(std::string_view text, const std::string& name) {
    bool is_first = true;
    TextLines lines(text);
    while (const auto line = lines.next_filled()) {
      const std::string where = line->where(name);
      const Json object = std::exchange(is_first, false)
                              ? parse_first_line(line->text, where, kWholeFileHint)
                              : Json::parse(line->text, where);
      read_object(object, where);
      reading_(line->end, std::ssize(text));
    }
  }

  void read_object(const Json& object, const std::string& where) {
    if (object.contains("input_ids")) return add_sample(object, where);
    require_known_keys(object, where);
    ScoreLabel label{.where = where, .id = "", .is_pair = !object.contains("text")};
    require(label.is_pair || !(object.contains("context") || object.contains("continuation")),
            ErrorKind::file, "{}: text excludes context and continuation", where);
    if (const auto id = object.find("id")) label.id = id_text(*id);
    if (label.is_pair) {
      add_pair(std::move(label), object.at("context"), object.at("continuation"));
    } else {
      add_text(std::move(label), tokens_of(object.at("text"), where));
    }
  }

  static void require_known_keys(const Json& object, const std::string& where) {
    object.for_each([&](const std::string& key, const Json&) {
      const bool known = key == "text" || key == "context" || key == "continuation" || key == "id";
      require(known, ErrorKind::file,
              "{}: a text to score has no \"{}\"; there are text, or context and continuation, or "
              "input_ids and labels, and id{}",
              where, key,
              is_of_training(key) ? "; moesaic sft --samples-out FILE makes such lines of this one"
                                  : "");
    });
  }
  /// A member of other lines of fine-tuning.
  static bool is_of_training(std::string_view key) {
    return key == "messages" || key == "conversations" || key == "instruction" || key == "prompt" ||
           key == "completion";
  }

  /// Of a window; its end if none counts.
  static std::int64_t first_counted(const ScoreDocument& document, const ScoreWindow& window) {
    std::int64_t token = window.first;
    while (token < window.end && !document.counts(token)) ++token;
    return token;
  }

  /// A sample of fine-tuning: its trained tokens count.
  void add_sample(const Json& object, const std::string& where) {
    MadeSample sample = make_sample(object, SampleFormat::tokens, tools_);
    ScoreDocument document{.tokens = std::move(sample.tokens), .windows = {}};
    const std::vector<std::int32_t>& labels = sample.labels;
    document.counted.resize(labels.size());
    for (std::size_t i = 1; i < labels.size(); ++i) {  // of the first one nothing is predicted
      document.counted[i] = labels[i] != kNotTrained;
      require(
          !document.counted[i] || labels[i] == document.tokens[i], ErrorKind::file,
          "{}: label {} of token {} is another token: a text is scored, and labels say which of "
          "its tokens count",
          object.at("labels").where(), labels[i], i);
    }
    const auto length = std::ssize(document.tokens);
    require(std::ranges::find(document.counted, true) != document.counted.end(), ErrorKind::file,
            "{}: no label but {}, and so nothing to score", object.at("labels").where(),
            kNotTrained);
    if (options_.no_window) require_context(limit_, length, 0, where);
    document.windows = cut_windows(length, limit_.tokens, stride_);
    std::erase_if(document.windows, [&](const ScoreWindow& window) {
      return first_counted(document, window) == window.end;
    });
    require(!document.windows.empty(), ErrorKind::file,
            "{}: its trained tokens are the first ones of windows, of which nothing is predicted; "
            "take a --stride below --ctx-size",
            where);
    ScoreWindow& front = document.windows.front();
    front.first = first_counted(document, front);
    ScoreLabel label{.where = where, .id = ""};
    if (const auto id = object.find("id")) label.id = id_text(*id);
    add(std::move(label), std::move(document));
  }

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const std::string& where) {
    return encode_text(tokenizer(), config_, text, where);
  }

  [[nodiscard]] std::vector<std::int32_t> tokens_of(const Json& value, const std::string& where) {
    if (!value.is_array()) return encode(value.as_string(), where);
    std::vector<std::int32_t> tokens;
    value.for_each([&](const std::string&, const Json& element) {
      const std::int64_t id = element.as_int();
      require(id >= 0 && id < config_.vocab_size, ErrorKind::file,
              "{}: token id {} is outside the model's vocabulary of {}", element.where(), id,
              config_.vocab_size);
      tokens.push_back(static_cast<std::int32_t>(id));
    });
    return tokens;
  }

  void add_text(ScoreLabel label, std::vector<std::int32_t> tokens) {
    const auto length = std::ssize(tokens);
    require(length >= 2, ErrorKind::file, "{} has {}, and so nothing to predict", label.where,
            counted(length, "token"));
    if (options_.no_window) require_context(limit_, length, 0, label.where);
    std::vector<ScoreWindow> windows = cut_windows(length, limit_.tokens, stride_);
    add(std::move(label), {.tokens = std::move(tokens), .windows = std::move(windows)});
  }

  /// The tokens of a continuation are those of both texts together that the context alone has not;
  /// the context's spaces at its end belong to the continuation, which is where tokenizers put
  /// them. As lm-evaluation-harness has it.
  void add_pair(ScoreLabel label, const Json& context, const Json& continuation) {
    std::vector<std::int32_t> tokens;
    std::int64_t first = 0;
    require(context.is_array() == continuation.is_array(), ErrorKind::file,
            "{}: context and continuation are both texts, or both arrays of token ids",
            label.where);
    if (context.is_array()) {
      tokens = tokens_of(context, label.where);
      first = std::ssize(tokens);
      const std::vector<std::int32_t> rest = tokens_of(continuation, label.where);
      tokens.insert(tokens.end(), rest.begin(), rest.end());
    } else {
      const std::string text = context.as_string();
      tokens = encode(text + continuation.as_string(), label.where);
      const std::size_t end = text.find_last_not_of(kSpaces);
      const auto trimmed = std::string_view(text).substr(0, end == text.npos ? 0 : end + 1);
      first = std::ssize(tokenizer().encode(trimmed));
    }
    const auto length = std::ssize(tokens);
    require(first >= 1, ErrorKind::file, "{}: the context has no tokens to predict from",
            label.where);
    require(first < length, ErrorKind::file, "{}: the continuation has no tokens", label.where);
    add(std::move(label), {.tokens = std::move(tokens), .windows = {pair_window(length, first)}});
    check_pair();
  }

  /// The last token is only predicted, so that one more than the context fits.
  [[nodiscard]] ScoreWindow pair_window(std::int64_t length, std::int64_t first) const {
    return {.begin = std::max<std::int64_t>(0, length - limit_.tokens - 1),
            .end = length,
            .first = first};
  }

  void check_pair() const {
    const ScoreWindow& window = input_.documents.back().windows.front();
    const std::string& where = input_.labels.back().where;
    if (options_.no_window) require_context(limit_, window.end - 1, 0, where);
    require_context(limit_, window.end - window.first, 0, where + ": the continuation");
  }

  void add(ScoreLabel label, ScoreDocument document) {
    label.windows = std::ssize(document.windows);
    input_.labels.push_back(std::move(label));
    input_.documents.push_back(std::move(document));
  }

  const Options& options_;
  const ModelConfig& config_;
  const std::string& directory_;
  const ReadProgress& reading_;
  ScoreInput& input_;
  SampleTools tools_;
  ContextLimit limit_;
  std::int64_t stride_ = 0;
};

}  // namespace

ScoreSizes ScoreInput::sizes() const {
  ScoreSizes sizes;
  for (const ScoreDocument& document : documents) {
    for (const ScoreWindow& window : document.windows) {
      ++sizes.windows;
      sizes.tokens += window.end - window.begin;
      sizes.longest = std::max(sizes.longest, window.end - window.begin);
    }
  }
  return sizes;
}

ScoreInput read_score_input(const Runtime& runtime, const OpenModel& model) {
  const Options& options = runtime.options();
  ScoreInput input;
  read_texts(runtime, [&](const ReadProgress& reading) {
    require(!options.no_window || options.stride == 0, ErrorKind::usage,
            "--no-window and --stride exclude each other");
    require(!options.files.empty(), ErrorKind::usage, "no text: --file FILE says which");
    Reader reader(runtime, model, reading, input);
    for (const std::string& path : options.files) reader.read(path);
    if (options.logprobs_out) (void)reader.tokenizer();  // for the text of each token
  });
  return input;
}

}  // namespace moesaic
