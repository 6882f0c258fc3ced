// Reduces a plan to workers that exchange data.
//
// If a step cuts no tensor and splits no operator, its groups are copies of each other:
// they compute the same, and fetch nothing from each other. Seven workers of a graph
// without an extent that 7 divides are seven copies of the serial run.
//
// Output:     the plan of the first copy: without the first steps, if these divide
//             nothing. Later steps stay, so workers keep their numbers.
// Not handled: plans with routes, which are for one machine, are returned unchanged.
#ifndef TOFU_GRAPH_COPIED_WORKERS_H_
#define TOFU_GRAPH_COPIED_WORKERS_H_

#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

Plan WithoutCopiedWorkers(const StrategyTable& table, Plan plan);

}  // namespace tofu

#endif  // TOFU_GRAPH_COPIED_WORKERS_H_
