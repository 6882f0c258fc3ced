// Finds the smallest memory limit under which a problem has a choice, and the variables
// that use most memory at its peak.
//
// Halves the interval between a lower bound on the peak and the peak of a known choice.
// Solve decides whether a limit leaves a choice, with all allowed costs set to 0.
//
// Input:      a problem; its own limit is ignored.
// Output:     `least` is the peak of a choice; no choice has a peak below `bound`. They
//             are equal unless time ended the search. Also the moment of that peak, and
//             the variables that use memory then, most bytes first.
// Errors:     none. If forbidden costs leave no choice under any limit, `exists` is
//             false.
// Complexity: that of Solve, times the logarithm of the bytes.
#ifndef TOFU_SOLVER_LEAST_LIMIT_H_
#define TOFU_SOLVER_LEAST_LIMIT_H_

#include <cstdint>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/problem/deadline.h"

namespace tofu {

struct LeastLimit {
  struct Need {
    int variable = 0;
    int64_t bytes = 0;
  };

  bool exists = true;
  int64_t least = kUnlimited;  // kUnlimited: no choice was found in time
  int64_t bound = 0;
  std::vector<int> values;
  int moment = 0;
  std::vector<Need> needs;
};

LeastLimit FindLeastLimit(const ChoiceProblem& problem, Deadline deadline, int threads);

}  // namespace tofu

#endif  // TOFU_SOLVER_LEAST_LIMIT_H_
