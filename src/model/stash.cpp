#include "src/model/stash.h"

#include <string_view>

#include "base/error.h"
#include "src/model/feed_forward.h"
#include "src/model/token_mixer.h"

namespace moesaic {
namespace {

constexpr std::string_view kUntrainable = "layers of this kind cannot be trained yet";

}  // namespace

std::unique_ptr<Stash> TokenMixer::make_stash() const {
  fail(ErrorKind::usage, "{}", kUntrainable);
}

void TokenMixer::backward(const MixerLayer&, const Batch&, Stash&, const PartBackward&) {
  fail(ErrorKind::usage, "{}", kUntrainable);
}

std::unique_ptr<Stash> FeedForward::make_stash() const {
  fail(ErrorKind::usage, "{}", kUntrainable);
}

void FeedForward::backward(Stash&, const PartBackward&) {
  fail(ErrorKind::usage, "{}", kUntrainable);
}

}  // namespace moesaic
