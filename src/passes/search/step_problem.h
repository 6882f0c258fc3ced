// The problem that one step of a plan solves, as text for other solvers.
//
// Input:      a graph, its table, a plan of it and the number of a step, from 0.
//             Earlier steps are as in the plan, later ones do not exist.
// Output:     JSON (docs/formats.md): variables with their domains, and costs
//             over one or two of them. Its minimum is the least that the first
//             step + 1 steps can communicate, given the first `step`.
// Errors:     UserError(kPlan) for a step that the plan does not have, and for
//             text that is not such a problem.
// Position:   after a plan is made; tests and benchmarks use it.
// Complexity: that of a search without its elimination (step_search.h).
#ifndef TOFU_PASSES_SEARCH_STEP_PROBLEM_H_
#define TOFU_PASSES_SEARCH_STEP_PROBLEM_H_

#include <string>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "solver/eliminate.h"

namespace tofu {

PairwiseProblem StepProblem(const Graph& graph, const StrategyTable& table,
                            const Plan& plan, int step);

std::string WriteStepProblem(const PairwiseProblem& problem);
PairwiseProblem ReadStepProblem(const std::string& text);

// Solves the output of WriteStepProblem() by elimination, to compare results and times
// with another solver. Returns JSON (docs/formats.md).
std::string SolveStepProblem(const std::string& text);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_STEP_PROBLEM_H_
