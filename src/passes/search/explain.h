// Explains why a plan cuts a tensor, or splits an operator, as it does: counts the cost
// of every other choice (docs/formats.md, "Explanation").
//
// Input:      a graph, its table, a plan for it, and the name of a node, or
//             "NODE[1]" for another output of it.
// Output:     JSON. For an operator: every variable along which each step can
//             split it, with the bytes of each input and output, if all tensors
//             and the operator's other steps stay as in the plan. For a tensor:
//             every cut at each step, with the plan's bytes
//             (a) if only the operators that touch it choose again, and
//             (b) if all tensors and operators choose that step again.
//             All bytes are those of the plan's shares; (b) chooses as for equal ones.
// Errors:     UserError(kPlan) for a name that the graph lacks, and for a plan
//             that cuts tied tensors differently.
// Position:   after search or after a plan is read.
// Complexity: (b) is one search (step_search.h) for each cut and step.
#ifndef TOFU_PASSES_SEARCH_EXPLAIN_H_
#define TOFU_PASSES_SEARCH_EXPLAIN_H_

#include <string>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

std::string Explain(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::string& name);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_EXPLAIN_H_
