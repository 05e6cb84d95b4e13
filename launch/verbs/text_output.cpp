#include "launch/verbs/text_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "launch/verbs/result_record.h"

namespace moesaic {
namespace {

/// ", sample 2 of 3", or nothing if there is one.
std::string sample_text(const RequestList::Place& place) {
  if (place.samples == 1) return "";
  return fmt::format(", sample {} of {}", place.sample + 1, place.samples);
}

/// Throws Error{resource} if nobody will read it: what is computed would be lost.
void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_output();
}

}  // namespace

TextOutput::TextOutput(const Runtime& runtime, const TokenPrompts& input,
                       const RequestList& requests, ResultFile* file, Arrival arrival)
    : input_(input),
      requests_(requests),
      file_(file),
      json_(runtime.options().json || file != nullptr),
      unordered_(runtime.options().unordered),
      shows_prompts_(!runtime.options().no_display_prompt),
      streams_(!json_ && arrival == Arrival::before && requests.demand().requests == 1),
      arrival_(arrival) {
  add_new();
  if (arrival == Arrival::meanwhile) return;
  const bool texts_are_seen = file == nullptr && isatty(STDOUT_FILENO) != 0;
  const bool silent = streams_ || texts_are_seen || !runtime.log().enabled(LogLevel::info);
  progress_.emplace("tokens", silent, [](std::int64_t amount) { return std::to_string(amount); });
  const double share = static_cast<double>(finished_) / static_cast<double>(count());
  tokens_ =
      static_cast<std::int64_t>(static_cast<double>(requests_.demand().most_new_tokens) * share);
}

void TextOutput::add_new() {
  for (; known_ < count(); ++known_) {
    const RequestList::Place place = requests_.place(known_);
    const Prompt& prompt = prompt_of(place);
    const bool there = is_there(place);
    if (there) file_->require_same(static_cast<std::int64_t>(place.prompt), prompt);
    if (there || prompt.error) ++finished_;
    if (unordered_ && !there && prompt.error) write(error_text(place));
  }
  skip_to_next();
  advance();
}

bool TextOutput::is_there(const RequestList::Place& place) const {
  return file_ != nullptr && file_->has(static_cast<std::int64_t>(place.prompt), place.sample);
}

void TextOutput::skip_to_next() {
  for (; next_ < count(); ++next_) {
    const RequestList::Place place = requests_.place(next_);
    if (!prompt_of(place).error && !is_there(place)) return;
  }
}

bool TextOutput::has_next() const {
  return next_ < count();
}

std::optional<Request> TextOutput::next() {
  if (!has_next()) return std::nullopt;
  if (streams_) print_now(shown(input_.prompts.front()));
  asked_.push_back(next_);
  Request request = requests_.request(next_++);
  skip_to_next();
  return request;
}

void TextOutput::take(const NewToken& token) {
  if (streams_) print_now(token.text);
  if (progress_) progress_->update(++tokens_, requests_.demand().most_new_tokens);
}

void TextOutput::take(const Finished& finished) {
  const std::int64_t number = asked_[static_cast<std::size_t>(finished.request)];
  ++finished_;
  std::string text = text_of(requests_.place(number), finished);
  if (finished_ == count()) progress_.reset();
  if (unordered_) return write(text);
  ready_.emplace(number, std::move(text));
  advance();
}

std::string TextOutput::name_of(RequestId request) const {
  const RequestList::Place place = requests_.place(asked_[static_cast<std::size_t>(request)]);
  return prompt_of(place).where + sample_text(place);
}

std::string TextOutput::shown(const Prompt& prompt) const {
  return shows_prompts_ && !prompt.is_chat ? prompt.text : "";
}

std::string TextOutput::text_of(const RequestList::Place& place, const Finished& finished) const {
  if (streams_) return finished.rest + "\n";
  if (json_) {
    return result_record({prompt_of(place), place, requests_.prompt_tokens(place.prompt)}, finished,
                         *input_.tokenizer);
  }
  return fmt::format("{}\n{}{}\n", title(place), shown(prompt_of(place)), finished.text);
}

std::string TextOutput::error_text(const RequestList::Place& place) const {
  const Prompt& prompt = prompt_of(place);
  if (json_) return error_record(prompt, static_cast<std::int64_t>(place.prompt));
  return fmt::format("{}\n[{}]\n", title(place), prompt.error->what());
}

std::string TextOutput::title(const RequestList::Place& place) const {
  const std::string all =
      arrival_ == Arrival::before ? fmt::format(" of {}", input_.prompts.size()) : "";
  return fmt::format("{}--- prompt {}{}{}", place.prompt == 0 && place.sample == 0 ? "" : "\n",
                     place.prompt + 1, all, sample_text(place));
}

void TextOutput::advance() {
  for (; !unordered_ && written_ < count(); ++written_) {
    const RequestList::Place place = requests_.place(written_);
    if (is_there(place)) continue;
    if (prompt_of(place).error) {
      write(error_text(place));
      continue;
    }
    const auto ready = ready_.find(written_);
    if (ready == ready_.end()) return;
    write(ready->second);
    ready_.erase(ready);
  }
}

void TextOutput::write(std::string_view text) {
  if (file_ != nullptr) {
    file_->append(text);
  } else {
    print_now(json_ ? fmt::format("{}\n", text) : std::string(text));
  }
}

std::string TextOutput::end() {
  if (streams_ && finished_ == 0) print_now("\n");
  progress_.reset();
  if (file_ != nullptr) file_->sync();
  return fmt::format("{} of {} texts are finished", finished_ - std::ssize(ready_), count());
}

}  // namespace moesaic
