#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/matrix_view.h"
#include "launch/options/option_values.h"
#include "launch/shapes/named_shapes.h"
#include "src/parallel/expert_placement.h"

namespace moesaic {

/// How tokens choose their experts. Even: every expert as often as the others (nearly). Skewed: one
/// after the other without repetition, the n-th most popular 1/n as likely as the first. Hot rank:
/// all choices that can be are of rank 0's experts, each as often as the others.
enum class RoutingKind { even, skewed, hot_rank };

[[nodiscard]] std::string_view routing_name(RoutingKind kind) noexcept;
/// Of --routing.
[[nodiscard]] std::vector<RoutingKind> routing_kinds(RoutingChoice choice);

/// Which experts the tokens of all ranks choose: [num_tokens][topk], ascending in each token. The
/// same on every rank.
class LayerRouting {
 public:
  /// `hot_experts`: the first ones, those of rank 0; of a hot rank alone.
  LayerRouting(RoutingKind kind, const LayerShape& shape, std::int64_t num_tokens,
               std::int64_t hot_experts = 0);

  /// Drawn: the experts of a token are the first that exponentially distributed clocks of these
  /// `rates` [experts] let ring.
  LayerRouting(const LayerShape& shape, std::int64_t num_tokens, std::vector<double> rates,
               std::uint64_t seed);

  /// The same choices of other experts: each is replaced by the one `by` further on among those of
  /// its rank, so that all ranks have as many rows as before.
  [[nodiscard]] LayerRouting rotated(const ExpertPlacement& placement, std::int64_t by) const;

  [[nodiscard]] std::int64_t num_tokens() const noexcept { return num_tokens_; }
  [[nodiscard]] const std::vector<ExpertId>& experts() const noexcept { return experts_; }
  [[nodiscard]] std::span<const ExpertId> experts_of(std::int64_t token) const {
    return std::span(experts_).subspan(static_cast<std::size_t>(token * shape_.topk),
                                       static_cast<std::size_t>(shape_.topk));
  }
  /// [experts] rows of each.
  [[nodiscard]] std::vector<std::int64_t> rows_of_experts() const;
  /// Makes the rows of `x`, which are those of the tokens from `first_token` on, choose so in a
  /// router whose logits are their first elements.
  void write_logits(std::int64_t first_token, MatrixView<float> x) const;

 private:
  void draw_skewed();
  void deal(std::int64_t hot_experts);
  void sort_tokens();

  LayerShape shape_;
  std::int64_t num_tokens_;
  std::vector<ExpertId> experts_;
};

}  // namespace moesaic
