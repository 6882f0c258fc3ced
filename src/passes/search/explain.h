// Why a plan cuts a tensor, or splits an operator, as it does: what each other
// choice would have cost (docs/formats.md, "Explanation").
//
// Input:      a graph, its table, a plan for it, and the name of a node, or
//             "NODE[1]" for a further output of one.
// Output:     JSON. Of an operator: at each step every variable it can be split
//             along, with the bytes of each input and output, all tensors and
//             the operator's other steps being as the plan has them. Of a
//             tensor: at each step every cut, with the plan's bytes
//             (a) when only the operators that touch it choose again, and
//             (b) when all tensors and operators choose that step again.
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
