// Decides the variables of a search one at a time, as Spartan does (paper section
// 7.3): a tensor, then the operators that touch it, then the next tensor.
//
// A tensor takes the value for which it and the operators that touch it cost least, if
// these choose their best values. Then each undecided one of them takes its best value,
// as if its undecided tensors were cut in the way that suits it best. Ties go to the
// lowest value.
//
// Input:      a problem without pairs of tensors; the tensors' variables in the
//             order in which they are decided.
// Output:     a value for every variable.
// Errors:     none.
// Complexity: O(cells of all matrices).
#ifndef TOFU_SOLVER_ELIMINATION_GREEDY_H_
#define TOFU_SOLVER_ELIMINATION_GREEDY_H_

#include <vector>

#include "solver/elimination/eliminate.h"

namespace tofu {

std::vector<int> DecideGreedily(const ChoiceProblem& problem,
                                const std::vector<int>& tensors);

}  // namespace tofu

#endif  // TOFU_SOLVER_ELIMINATION_GREEDY_H_
