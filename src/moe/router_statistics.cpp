#include "src/moe/router_statistics.h"

namespace moesaic {

void RouterStatistics::add(const RouterStatistics& other) {
  resize(std::ssize(other.chosen));
  for (std::size_t expert = 0; expert < chosen.size(); ++expert) {
    chosen[expert] += other.chosen[expert];
    probability[expert] += other.probability[expert];
  }
}

double balance_loss(const RouterStatistics& sums, std::int64_t tokens) {
  if (tokens == 0) return 0;
  const auto count = static_cast<double>(tokens);
  double loss = 0;
  for (std::size_t expert = 0; expert < sums.chosen.size(); ++expert) {
    const double probability =
        static_cast<double>(sums.probability[expert]) * RouterStatistics::kUnit;
    loss += static_cast<double>(sums.chosen[expert]) / count * (probability / count);
  }
  return loss * static_cast<double>(sums.chosen.size());
}

}  // namespace moesaic
