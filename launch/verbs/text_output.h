#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "launch/input/token_prompts.h"
#include "launch/job/runtime.h"
#include "launch/verbs/requests.h"
#include "launch/verbs/result_file.h"
#include "src/generate/open_requests.h"

namespace moesaic {

/// Whether all requests are there from the start, or more come while they run.
enum class Arrival { before, meanwhile };

/// Rank 0's requests and what becomes of them: the only text while its tokens come; of several,
/// each as soon as it and those before it are finished, or with --unordered as soon as it is. They
/// go to the standard output or to the file of --out; what is in the file already is not asked for.
class TextOutput {
 public:
  /// All must outlive this. Without a file, `file` is null.
  TextOutput(const Runtime& runtime, const TokenPrompts& input, const RequestList& requests,
             ResultFile* file, Arrival arrival);

  /// Takes notice of requests that have been added. Throws Error{usage} if the file has results of
  /// another prompt in the place of one.
  void add_new();

  /// Whether a request is left to be run.
  [[nodiscard]] bool has_next() const;
  /// It.
  [[nodiscard]] std::optional<Request> next();
  /// Of requests by the order in which next() gave them.
  void take(const NewToken& token);
  void take(const Finished& finished);
  /// "prompts.txt line 3", "prompts.txt line 3, sample 2 of 3".
  [[nodiscard]] std::string name_of(RequestId request) const;
  /// Nothing more will come. "3 of 7 texts are finished".
  std::string end();

 private:
  [[nodiscard]] const Prompt& prompt_of(const RequestList::Place& place) const {
    return input_.prompts[place.prompt];
  }
  [[nodiscard]] bool is_there(const RequestList::Place& place) const;
  void skip_to_next();
  /// What is shown of a prompt before its text.
  [[nodiscard]] std::string shown(const Prompt& prompt) const;
  [[nodiscard]] std::string text_of(const RequestList::Place& place,
                                    const Finished& finished) const;
  [[nodiscard]] std::string error_text(const RequestList::Place& place) const;
  [[nodiscard]] std::string title(const RequestList::Place& place) const;
  /// Writes in the order of the prompts what can be written.
  void advance();
  void write(std::string_view text);
  [[nodiscard]] std::int64_t count() const { return requests_.demand().requests; }

  const TokenPrompts& input_;
  const RequestList& requests_;
  ResultFile* file_;
  bool json_;
  bool unordered_;
  bool shows_prompts_;
  bool streams_;
  Arrival arrival_;
  std::int64_t known_ = 0;                     // requests before it have been taken notice of
  std::vector<std::int64_t> asked_;            // number of each request that next() gave
  std::int64_t next_ = 0;                      // number of the one that it gives
  std::map<std::int64_t, std::string> ready_;  // not yet written, as one before it is not finished
  std::int64_t written_ = 0;                   // all before it are written
  std::int64_t finished_ = 0;                  // also before this run, and bad ones
  std::optional<Progress> progress_;
  std::int64_t tokens_ = 0;
};

}  // namespace moesaic
