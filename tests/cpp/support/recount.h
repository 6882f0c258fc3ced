// Counts what a plan makes the workers fetch, worker by worker and box by box,
// from the plan, the graph and the table alone: an oracle that shares no code
// with the search.
#ifndef TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
#define TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"

namespace tofu {

// Bytes that all workers fetch under the plan.
int64_t Recount(const Graph& graph, const StrategyTable& table, const Plan& plan);

// The part of it that one node causes; used: UsedEntries(graph).
int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& used, int node);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
