#include "launch/verbs/pending_requests.h"

namespace moesaic {

PendingRequests::PendingRequests(RequestList& requests, const ResultFile* file, TextOutput& output)
    : requests_(requests), file_(file), output_(output) {
  add_new();
}

void PendingRequests::add_new() {
  for (; known_ < count(); ++known_) {
    const RequestList::Place place = requests_.place(known_);
    const Prompt& prompt = requests_.prompt(known_);
    const bool there = is_there(place);
    if (there) file_->require_same(place.prompt, prompt);
    if (!there && !prompt.error) continue;
    there ? output_.skip(known_) : output_.take_bad(known_, result_place(known_));
    requests_.forget(known_);
  }
  skip_to_next();
}

bool PendingRequests::is_there(const RequestList::Place& place) const {
  return file_ != nullptr && file_->has(place.prompt, place.sample);
}

/// A prompt is kept for all its samples, of which some may be there.
void PendingRequests::skip_to_next() {
  const auto is_left = [&] { return requests_.keeps(next_) && !is_there(requests_.place(next_)); };
  while (has_next() && !is_left()) ++next_;
}

std::optional<Request> PendingRequests::next() {
  if (!has_next()) return std::nullopt;
  output_.begin(requests_.prompt(next_));
  asked_.emplace(given_++, next_);
  Request request = requests_.request(next_++);
  skip_to_next();
  return request;
}

void PendingRequests::take(const Finished& finished) {
  const std::int64_t number = asked_.extract(finished.request).mapped();
  output_.take(number, result_place(number), finished);
  requests_.forget(number);
}

std::string PendingRequests::name_of(RequestId request) const {
  const std::int64_t number = asked_.at(request);
  return requests_.prompt(number).where + sample_text(requests_.place(number));
}

ResultPlace PendingRequests::result_place(std::int64_t number) const {
  return {requests_.prompt(number), requests_.place(number), requests_.prompt_tokens(number)};
}

}  // namespace moesaic
