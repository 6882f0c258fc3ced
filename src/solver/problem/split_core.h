// Splits a core into parts that share no table and no moment.
//
// Output:     the parts, each with its variables in the core's order; the parts with most
//             values come last. Equal parts are next to each other.
// Complexity: O(pairs + segments + moments), and the copies of their cells.
#ifndef TOFU_SOLVER_PROBLEM_SPLIT_CORE_H_
#define TOFU_SOLVER_PROBLEM_SPLIT_CORE_H_

#include <vector>

#include "solver/problem/choice_problem.h"

namespace tofu {

struct CorePart {
  ChoiceProblem core;          // its constant is 0
  std::vector<int> variables;  // [variable]: its number in the whole core
};

std::vector<CorePart> SplitCore(const ChoiceProblem& core);

// Whether both cores are the same problem, so the same values solve both.
bool AreEqual(const ChoiceProblem& a, const ChoiceProblem& b);

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_SPLIT_CORE_H_
