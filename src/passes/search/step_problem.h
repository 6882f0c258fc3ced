// Writes the problem of one step of a plan as text for other solvers.
//
// Input:      a graph, its table, a plan of it and the number of a step, from 0.
//             Earlier steps are as in the plan, later ones do not exist.
// Output:     JSON (docs/formats.md): variables with their domains, and costs
//             over one or two of them. Its minimum is the least communication of
//             the first step + 1 steps, given the first `step`.
// Errors:     UserError(kPlan) for a step that the plan does not have.
// Position:   after a plan is made; solver/problem/read_problem.h reads the text, and
//             tests and benchmarks use it.
// Complexity: that of a search without its elimination (step_search.h).
#ifndef TOFU_PASSES_SEARCH_STEP_PROBLEM_H_
#define TOFU_PASSES_SEARCH_STEP_PROBLEM_H_

#include <string>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "solver/problem/choice_problem.h"

namespace tofu {

ChoiceProblem StepProblem(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, int step);

std::string WriteStepProblem(const ChoiceProblem& problem);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_STEP_PROBLEM_H_
