// Counts what a plan makes the workers fetch, worker by worker and region by region,
// from the plan, the graph and the table alone.
//
// An oracle: of the code under test it uses the structs Graph, StrategyTable and Plan
// and none of their functions. Its geometry, its arithmetic and its sizes of dtypes
// are its own, so a fault in src/ cannot hide behind the same fault here.
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

// The part of it that one node causes; read: ReadTensors(graph).
int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& read, int node);

// Per entry: whether a head, or an operator that a head needs, reads it.
std::vector<bool> ReadTensors(const Graph& graph);

// How many values variable `var` of a node's row takes.
int64_t VariableExtent(const Graph& graph, const StrategyRow& row, int node, size_t var);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_H_
