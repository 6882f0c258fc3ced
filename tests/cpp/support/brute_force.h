// Finds the cheapest plan by trying all plans, for small graphs. Shares nothing with the
// search except the classes of tensors that are cut alike, and the batch.
#ifndef TOFU_TESTS_CPP_SUPPORT_BRUTE_FORCE_H_
#define TOFU_TESTS_CPP_SUPPORT_BRUTE_FORCE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"

namespace tofu {

// The plans to try: all ways to cut the tensor classes at all steps.
struct PlanSpace {
  std::vector<int> parts;
  size_t max_ways = 0;  // to cut the tensors
  // [tensor class]: may stay whole at any step, not only if nothing divides; empty: none
  // may. If any may, so may operators that only move elements, and steps may cut the
  // batch unevenly.
  std::vector<bool> may_be_whole = {};
  // All operators may be whole; element-wise ones are cut like their tensors.
  bool operators_may_be_whole = false;
  // If tensors may be whole, steps may cut the batch unevenly.
  bool batch_may_be_uneven = true;
};

// The least bytes of these plans, by Recount, if each operator takes its best split
// independently; -1 if there are more than `max_ways`. `fits`, unless null, restricts the
// ways to cut the tensors; the largest int64_t if none is left.
int64_t BruteForceBytes(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, const PlanSpace& space,
                        const std::function<bool(const Plan&)>& fits = nullptr);

// The same for any cost of a node under a plan.
using NodeCost = std::function<int64_t(const Plan& plan, int node)>;
int64_t BruteForceCost(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const PlanSpace& space,
                       const NodeCost& cost);

// The least cost of plans by their memory, `peak`, without plans that another one beats
// in both. Empty if there are more than `max_ways`.
std::map<int64_t, int64_t> BruteForceFrontier(
    const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
    const PlanSpace& space, const NodeCost& cost,
    const std::function<int64_t(const Plan&)>& peak);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_BRUTE_FORCE_H_
