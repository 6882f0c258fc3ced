// Makes cores of random problems, and finds their least cost.
#ifndef TOFU_TESTS_SOLVER_RANDOM_CORE_H_
#define TOFU_TESTS_SOLVER_RANDOM_CORE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/merge_classes.h"
#include "solver/random_problem.h"

namespace tofu {

// The core of RandomProblem(seed), with classes merged but not reduced.
inline ChoiceProblem RandomCore(int seed) {
  return MergeClasses(RandomProblem(seed)).core;
}

// The least cost of a choice that fits; kForbidden if there is none.
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
