// Cores of random problems, and the least they cost.
#ifndef TOFU_TESTS_SOLVER_RANDOM_CORE_H_
#define TOFU_TESTS_SOLVER_RANDOM_CORE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "solver/choice_problem.h"
#include "solver/merge_classes.h"
#include "solver/random_problem.h"

namespace tofu {

// Of RandomProblem(seed); its classes are merged, but nothing is reduced.
inline ChoiceProblem RandomCore(int seed) {
  return MergeClasses(RandomProblem(seed)).core;
}

// kForbidden: no choice is allowed and fits.
inline int64_t LeastCost(const ChoiceProblem& core) {
  int64_t least = kForbidden;
  if (core.infeasible) return least;
  ForEachChoice(core.domain, [&](const std::vector<int>& values) {
    if (core.Fits(values)) least = std::min(least, core.Cost(values));
  });
  return least;
}

}  // namespace tofu

#endif  // TOFU_TESTS_SOLVER_RANDOM_CORE_H_
