#include "launch/verbs/text_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "launch/job/runtime.h"

namespace moesaic {
namespace {

void print_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_output();
}

}  // namespace

std::string sample_text(const RequestList::Place& place) {
  if (place.samples == 1) return "";
  return fmt::format(", sample {} of {}", place.sample + 1, place.samples);
}

TextOutput::TextOutput(const Parts& parts, Arrival arrival)
    : parts_(parts),
      json_(parts.options.json || parts.file != nullptr),
      unordered_(parts.options.unordered),
      shows_prompts_(!parts.options.no_display_prompt),
      streams_(!json_ && arrival == Arrival::before && parts.demand.requests == 1),
      arrival_(arrival) {
  if (arrival == Arrival::meanwhile) return;
  const bool texts_are_seen = parts.file == nullptr && isatty(STDOUT_FILENO) != 0;
  const bool silent = streams_ || texts_are_seen || !parts.log.enabled(LogLevel::info);
  progress_.emplace("tokens", silent, [](std::int64_t amount) { return std::to_string(amount); });
}

void TextOutput::skip(std::int64_t number) {
  count_as_done();
  settle(number, std::nullopt);
}

void TextOutput::take_bad(std::int64_t number, const ResultPlace& place) {
  count_as_done();
  settle(number, error_text(place));
}

void TextOutput::count_as_done() {
  ++finished_;
  const double share = static_cast<double>(finished_) / static_cast<double>(parts_.demand.requests);
  tokens_ = static_cast<std::int64_t>(static_cast<double>(parts_.demand.most_new_tokens) * share);
}

void TextOutput::begin(const Prompt& prompt) {
  if (streams_) print_now(shown(prompt));
}

void TextOutput::take(const NewToken& token) {
  if (streams_) print_now(token.text);
  if (progress_) progress_->update(++tokens_, parts_.demand.most_new_tokens);
}

void TextOutput::take(std::int64_t number, const ResultPlace& place, const Finished& finished) {
  if (++finished_ == parts_.demand.requests) progress_.reset();
  settle(number, text_of(place, finished));
}

std::string TextOutput::shown(const Prompt& prompt) const {
  return shows_prompts_ && !prompt.is_chat ? prompt.text : "";
}

std::string TextOutput::text_of(const ResultPlace& place, const Finished& finished) const {
  if (streams_) return finished.rest + "\n";
  if (json_) return result_record(place, finished, parts_.tokenizer);
  return fmt::format("{}\n{}{}\n", title(place.place), shown(place.prompt), finished.text);
}

std::string TextOutput::error_text(const ResultPlace& place) const {
  if (json_) return error_record(place.prompt, place.place.prompt);
  return fmt::format("{}\n[{}]\n", title(place.place), place.prompt.error->what());
}

std::string TextOutput::title(const RequestList::Place& place) const {
  const std::string all =
      arrival_ == Arrival::before ? fmt::format(" of {}", parts_.demand.prompts) : "";
  return fmt::format("{}--- prompt {}{}{}", place.prompt == 0 && place.sample == 0 ? "" : "\n",
                     place.prompt + 1, all, sample_text(place));
}

void TextOutput::settle(std::int64_t number, std::optional<std::string> text) {
  if (unordered_) {
    if (text) write(*text);
    return;
  }
  ready_.emplace(number, std::move(text));
  for (; !ready_.empty() && ready_.begin()->first == written_; ++written_) {
    if (const auto& next = ready_.begin()->second) write(*next);
    ready_.erase(ready_.begin());
  }
}

void TextOutput::write(std::string_view text) {
  if (parts_.file != nullptr) {
    parts_.file->append(text);
  } else {
    print_now(json_ ? fmt::format("{}\n", text) : std::string(text));
  }
}

std::string TextOutput::end() {
  if (streams_ && finished_ == 0) print_now("\n");
  progress_.reset();
  if (parts_.file != nullptr) parts_.file->sync();
  const auto waits = [](const auto& entry) { return entry.second.has_value(); };
  return fmt::format("{} of {} texts are finished",
                     finished_ - std::ranges::count_if(ready_, waits), parts_.demand.requests);
}

}  // namespace moesaic
