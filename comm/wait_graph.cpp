#include "comm/wait_graph.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace moesaic {
namespace {

/// Tarjan, "Depth-first search and linear graph algorithms" (1972): the strongly connected
/// components of a graph.
class Components {
 public:
  explicit Components(const WaitGraph& awaits)
      : awaits_(awaits), visit_(awaits.size(), 0), component_(awaits.size(), -1) {
    for (int rank = 0; rank < static_cast<int>(awaits.size()); ++rank) {
      if (visit_[at(rank)] == 0) visit(rank);
    }
  }

  [[nodiscard]] const std::vector<std::vector<int>>& all() const noexcept { return all_; }
  /// Whether ranks of a component wait for others.
  [[nodiscard]] bool leads_on(const std::vector<int>& component) const {
    return std::ranges::any_of(component, [&](int rank) {
      return std::ranges::any_of(awaits_[at(rank)], [&](int next) {
        return component_[at(next)] != component_[at(rank)];
      });
    });
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  /// Returns the first visit among the ranks that can be reached and are in no component yet.
  int visit(int rank) {
    int first = visit_[at(rank)] = ++visits_;
    path_.push_back(rank);
    for (const int next : awaits_[at(rank)]) {
      if (component_[at(next)] >= 0) continue;
      first = std::min(first, visit_[at(next)] == 0 ? visit(next) : visit_[at(next)]);
    }
    if (first < visit_[at(rank)]) return first;
    std::vector<int> component;
    do {
      component.push_back(path_.back());
      component_[at(path_.back())] = static_cast<int>(all_.size());
      path_.pop_back();
    } while (component.back() != rank);
    std::ranges::sort(component);
    all_.push_back(std::move(component));
    return first;
  }

  const WaitGraph& awaits_;
  int visits_ = 0;
  std::vector<int> visit_;      // [ranks] as the how manieth; 0: not yet
  std::vector<int> component_;  // [ranks] or -1
  std::vector<int> path_;
  std::vector<std::vector<int>> all_;
};

/// Some circle that a walk from `rank` ends in; each rank on its way waits for another.
std::vector<int> find_circle(const WaitGraph& awaits, int rank) {
  std::vector<int> walk;
  auto begin = walk.end();
  while ((begin = std::ranges::find(walk, rank)) == walk.end()) {
    walk.push_back(rank);
    rank = awaits[static_cast<std::size_t>(rank)].front();
  }
  return {begin, walk.end()};
}

/// Whether some ranks of `component` would still wait in a circle without this one.
bool has_circle_without(const WaitGraph& awaits, const std::vector<int>& component, int missing) {
  WaitGraph rest(awaits.size());
  for (const int rank : component) {
    if (rank == missing) continue;
    std::ranges::copy_if(awaits[static_cast<std::size_t>(rank)],
                         std::back_inserter(rest[static_cast<std::size_t>(rank)]),
                         [&](int next) { return next != missing; });
  }
  const auto is_circle = [](const std::vector<int>& some) { return some.size() > 1; };
  return std::ranges::any_of(Components(rest).all(), is_circle);
}

}  // namespace

std::vector<std::vector<int>> where_waits_lead(const WaitGraph& awaits) {
  std::vector<std::vector<int>> places;
  const Components components(awaits);
  for (const std::vector<int>& component : components.all()) {
    if (components.leads_on(component)) continue;
    std::vector<int> named;
    if (component.size() > 1) named = find_circle(awaits, component.front());
    std::erase_if(named, [&](int rank) { return has_circle_without(awaits, component, rank); });
    std::ranges::sort(named);
    places.push_back(named.empty() ? component : named);
  }
  std::ranges::sort(places);
  return places;
}

}  // namespace moesaic
