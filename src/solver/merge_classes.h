// Merges variables that determine each other into classes: the first reduction, on the
// problem as it was posed.
//
// Where a table allows exactly one value of b for every value of a, and one of a for
// every value of b, the two are one decision. In problems made from training graphs most
// variables are tied so: tens of thousands of them make a few hundred classes.
//
// Input:      any problem.
// Output:     a variable for each class that has a choice, with the sums of its members'
//             costs and the uses of its members over time; and how its values say those
//             of the problem. `infeasible` where forbidden costs leave no choice.
// Invariants: the same least cost; nothing but arc consistency removes values.
// Errors:     none.
// Position:   first, before reduce_core, as it makes what is left small.
// Complexity: O(cells * times that a variable loses values), nearly always O(cells).
#ifndef TOFU_SOLVER_MERGE_CLASSES_H_
#define TOFU_SOLVER_MERGE_CLASSES_H_

#include "solver/core_problem.h"

namespace tofu {

struct MergedClasses {
  CoreProblem core;
  Lift lift;
};

MergedClasses MergeClasses(const LimitedProblem& problem);

}  // namespace tofu

#endif  // TOFU_SOLVER_MERGE_CLASSES_H_
