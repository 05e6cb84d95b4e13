#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "launch/input/requests.h"
#include "launch/verbs/result_file.h"
#include "launch/verbs/text_output.h"
#include "src/generate/open_requests.h"

namespace moesaic {

/// Rank 0's requests that are not finished: gives them one by one, and tells the output what became
/// of each. What is in the file of --out already is not asked for. A request that is finished, or
/// needs no run, is forgotten.
class PendingRequests {
 public:
  /// All must outlive this. Without a file, `file` is null.
  PendingRequests(RequestList& requests, const ResultFile* file, TextOutput& output);

  /// Takes notice of requests that have been added. Throws Error{usage} if the file has results of
  /// another prompt in the place of one.
  void add_new();

  /// Whether a request is left to be run.
  [[nodiscard]] bool has_next() const { return next_ < count(); }
  /// It.
  [[nodiscard]] std::optional<Request> next();
  /// Of requests by the order in which next() gave them.
  void take(const Finished& finished);
  /// "prompts.txt line 3", "prompts.txt line 3, sample 2 of 3".
  [[nodiscard]] std::string name_of(RequestId request) const;

 private:
  [[nodiscard]] bool is_there(const RequestList::Place& place) const;
  void skip_to_next();
  [[nodiscard]] ResultPlace result_place(std::int64_t number) const;
  [[nodiscard]] std::int64_t count() const { return requests_.demand().requests; }

  RequestList& requests_;
  const ResultFile* file_;
  TextOutput& output_;
  std::int64_t known_ = 0;  // requests before it have been taken notice of
  std::int64_t next_ = 0;   // number of the one that next() gives
  RequestId given_ = 0;     // how many it gave
  std::unordered_map<RequestId, std::int64_t> asked_;  // numbers of those that are not finished
};

}  // namespace moesaic
