#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/progress.h"
#include "launch/input/requests.h"
#include "launch/options/options.h"
#include "launch/verbs/result_file.h"
#include "launch/verbs/result_record.h"
#include "src/generate/open_requests.h"

namespace moesaic {

/// Whether all requests are there from the start, or more come while they run.
enum class Arrival { before, meanwhile };

/// ", sample 2 of 3", or nothing if there is one.
[[nodiscard]] std::string sample_text(const RequestList::Place& place);

/// Writes on rank 0 what became of requests: the only text while its tokens come; of several, each
/// as soon as it and those before it are finished, or with --unordered as soon as it is. They go to
/// the standard output or to the file of --out.
class TextOutput {
 public:
  struct Parts {
    const Options& options;
    const Log& log;
    const Tokenizer& tokenizer;
    const RequestList::Demand& demand;  // of the requests that have been added
    ResultFile* file = nullptr;         // of --out, if there is one
  };
  /// All must outlive this.
  TextOutput(const Parts& parts, Arrival arrival);

  // Of requests by their numbers. They throw what ResultFile does, and Error{resource} if nobody
  // reads the standard output any more: what is computed would be lost.
  /// The request's result is in the file already.
  void skip(std::int64_t number);
  /// It has a prompt with an error.
  void take_bad(std::int64_t number, const ResultPlace& place);
  /// It is about to be run.
  void begin(const Prompt& prompt);
  void take(const NewToken& token);
  void take(std::int64_t number, const ResultPlace& place, const Finished& finished);
  /// Nothing more will come. "3 of 7 texts are finished".
  std::string end();

 private:
  /// What is shown of a prompt before its text.
  [[nodiscard]] std::string shown(const Prompt& prompt) const;
  [[nodiscard]] std::string text_of(const ResultPlace& place, const Finished& finished) const;
  [[nodiscard]] std::string error_text(const ResultPlace& place) const;
  [[nodiscard]] std::string title(const RequestList::Place& place) const;
  /// One that is not run counts as much as any other.
  void count_as_done();
  /// Writes a result, or nothing, in its turn.
  void settle(std::int64_t number, std::optional<std::string> text);
  void write(std::string_view text);

  Parts parts_;
  bool json_;
  bool unordered_;
  bool shows_prompts_;
  bool streams_;
  Arrival arrival_;
  /// Of those that are not yet written, as one before them is not finished; none: nothing to write.
  std::map<std::int64_t, std::optional<std::string>> ready_;
  std::int64_t written_ = 0;   // all before it are written
  std::int64_t finished_ = 0;  // also before this run, and bad ones
  std::optional<Progress> progress_;
  std::int64_t tokens_ = 0;
};

}  // namespace moesaic
