// Reads the text of a problem (docs/formats.md, "Step problem").
//
// Input:      {"format": "tofu-step-problem", "version": 1 or 2, ...}.
// Output:     the problem; equal tables share their cells.
// Errors:     UserError(kPlan): the text does not follow the format; names the place.
// Complexity: O(length of the text).
#ifndef TOFU_SOLVER_PROBLEM_READ_PROBLEM_H_
#define TOFU_SOLVER_PROBLEM_READ_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "solver/problem/choice_problem.h"

namespace tofu {

struct ProblemText {
  ChoiceProblem problem;
  std::vector<int64_t> moments;  // [moment]: its number in the text
};

ProblemText ReadProblem(const std::string& text);

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_READ_PROBLEM_H_
