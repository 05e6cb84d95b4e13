#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "launch/job/agreement.h"
#include "launch/job/session.h"
#include "launch/verbs/run_statistics.h"
#include "launch/verbs/token_prompts.h"
#include "launch/verbs/verbs.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/generate/scorer.h"

namespace moesaic {
namespace {

/// The file of --logits-out: input_ids I64 [tokens], logits F32 [tokens, vocab].
class LogitsFile {
 public:
  LogitsFile(const std::string& path, const std::vector<std::int32_t>& tokens, std::int64_t vocab)
      : writer_(path, {{.name = "input_ids",
                        .dtype = DType::i64,
                        .shape = {static_cast<std::int64_t>(tokens.size())}},
                       {.name = "logits",
                        .dtype = DType::f32,
                        .shape = {static_cast<std::int64_t>(tokens.size()), vocab}}}) {
    const std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
    writer_.write("input_ids", 0, std::as_bytes(std::span(ids)));
  }

  void write(const LogitsRows& rows) {
    for (std::int64_t row = 0; row < rows.logits.rows(); ++row) {
      const auto bytes = std::as_bytes(rows.logits.row(row));
      writer_.write("logits", (rows.first + row) * static_cast<std::int64_t>(bytes.size()), bytes);
    }
  }
  void finish() { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

std::vector<Prompt> read_text(const Options& options) {
  require(options.file.has_value(), ErrorKind::usage, "no text: --file FILE says which");
  return {{.text = read_utf8_file(*options.file), .where = input_name(*options.file)}};
}

void print_result(const Runtime& runtime, const ScoreResult& result,
                  const RunStatistics& statistics) {
  const DocumentScore& score = result.documents.front();
  const double perplexity = std::exp(score.mean_loss());
  if (runtime.options().json) {
    fmt::print("{}\n", JsonWriter()
                           .field("loss", score.mean_loss())
                           .field("perplexity", perplexity)
                           .field("predicted_tokens", score.predicted_tokens)
                           .raw_field("statistics", statistics_json(statistics, runtime))
                           .text());
    return;
  }
  fmt::print("loss {:.6f}  perplexity {:.4f}  over {} tokens\n", score.mean_loss(), perplexity,
             score.predicted_tokens);
  runtime.log().once(LogLevel::info, "\n{}", statistics_text(statistics));
}

}  // namespace

void run_score(Runtime& runtime) {
  const Options& options = runtime.options();
  const OpenModel model = open_model(runtime);
  const TokenPrompts input =
      encode_prompts(runtime, model, BadPrompts::refuse, [&] { return read_text(options); });
  const std::int64_t length = input.lengths.front();
  std::optional<LogitsFile> file;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    require(length >= 2, ErrorKind::usage, "{} has {} token, and so nothing to predict",
            input.prompts.front().where, length);
    require_context(options, model.config, length, 0, input.prompts.front().where);
    if (options.logits_out)
      file.emplace(*options.logits_out, input.tokens.front(), model.config.vocab_size);
  });
  announce(runtime);
  const std::int64_t chunk = std::min(options.batch_size, length);
  Engine engine(runtime, model,
                {.sequences = runtime.is_first() ? 1 : 0,
                 .capacity = length,
                 .batch_tokens = chunk,
                 .logits_rows = runtime.is_first() ? chunk : 0});

  engine.transformer().reset_statistics();
  const ScoreResult result = [&] {
    Progress progress("tokens", !runtime.is_first() || !runtime.log().enabled(LogLevel::info),
                      [](std::int64_t count) { return std::to_string(count); });
    return score(
        engine.transformer(), runtime.world(), input.tokens,
        {.batch_tokens = chunk, .stop_wanted = [&] { return runtime.interruption().wanted(); }},
        [&](const LogitsRows& rows) {
          if (file) file->write(rows);
          progress.update(rows.first + rows.logits.rows(), length);
        });
  }();
  if (file && result.complete) file->finish();
  const RunStatistics statistics{
      .load = engine.load(),
      .prompt = {result.statistics.work.prompt_rows, result.statistics.prompt_seconds},
      .generation = {},
      .shared_tokens = 0,
      .ranks = gather_statistics(runtime.world(), engine.transformer())};
  if (!result.complete) {
    runtime.end_early(fmt::format("{} of {} tokens are scored",
                                  result.documents.front().predicted_tokens, length - 1));
  }
  if (runtime.is_first() && result.documents.front().predicted_tokens > 0) {
    print_result(runtime, result, statistics);
  }
}

}  // namespace moesaic
