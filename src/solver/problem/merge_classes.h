// Merges variables that determine each other into classes: the first reduction, on the
// original problem.
//
// If a table allows exactly one value of b for every value of a, and one of a for every
// value of b, then a and b are one decision. In problems made from training graphs this
// holds for most variables: tens of thousands of them form a few hundred classes.
//
// Input:      any problem.
// Output:     a variable for each class with more than one value, with the sums of its
//             members' costs, and of their uses over time; and the lift of its values to
//             the problem. `infeasible` if forbidden costs leave no choice.
// Invariants: the least cost stays the same; only arc consistency removes values.
// Errors:     none.
// Position:   first, before reduce_core, because it makes the problem much smaller.
// Complexity: O(cells * n) if a variable loses values n times, nearly always O(cells).
#ifndef TOFU_SOLVER_PROBLEM_MERGE_CLASSES_H_
#define TOFU_SOLVER_PROBLEM_MERGE_CLASSES_H_

#include "solver/problem/choice_problem.h"

namespace tofu {

struct MergedClasses {
  ChoiceProblem core;
  Lift lift;
};

MergedClasses MergeClasses(const ChoiceProblem& problem);

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_MERGE_CLASSES_H_
