#pragma once

namespace moesaic {
namespace {

/// Tile products leave most of the vector units idle: some take a call that runs after each of
/// them. This one does nothing.
struct NothingBetween {
  void operator()() const {}
};

}  // namespace
}  // namespace moesaic
