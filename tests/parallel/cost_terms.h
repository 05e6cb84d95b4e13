#pragma once

#include <string_view>

#include "src/parallel/step_cost.h"

namespace moesaic::test {

/// Of a term of that name; -1: there is none.
inline double term_seconds(const StepCost& cost, std::string_view name) {
  for (const CostTerm& term : cost.terms) {
    if (term.name == name) return term.seconds;
  }
  return -1;
}

}  // namespace moesaic::test
