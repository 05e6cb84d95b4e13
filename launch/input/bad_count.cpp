#include "launch/input/bad_count.h"

namespace moesaic {

void BadCount::add(const Error& error) {
  ++prompts_;
  if (first_.size() < kMostTold) first_.push_back(error);
}

void BadCount::warn(const Log& log, std::int64_t all, std::string_view done) const {
  for (const Error& error : first_) log.once(LogLevel::warning, "{}", error.what());
  if (prompts_ == 0) return;
  log.once(LogLevel::warning, "{} of {} prompts {} not {} (--strict refuses such files)", prompts_,
           all, prompts_ == 1 ? "is" : "are", done);
}

void BadCount::require_a_good_one(std::int64_t all) const {
  if (prompts_ > 0 && prompts_ == all) throw Error(first_.front());
}

}  // namespace moesaic
