// Finds the cheapest plan by trying all plans, for small graphs. Shares nothing with the
// search except the classes of tensors that are cut alike.
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

// The least that Recount counts over all ways to cut the tensor classes at all steps, if
// each operator takes its best split independently; -1 if there are more than `limit`
// ways to cut the tensors. Tensor classes in `may_be_whole` may stay whole at any step,
// others only if nothing divides; with them, so may operators that compute nothing. Only
// ways to cut the tensors for which `fits` holds, if given, count; the largest int64_t if
// there is none.
int64_t BruteForceBytes(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, const std::vector<int>& parts,
                        size_t limit, const std::vector<bool>& may_be_whole = {},
                        const std::function<bool(const Plan&)>& fits = nullptr);

// The same for any cost of a node under a plan. Where tensors may be whole, so may the
// operators that `operators` tells; element-wise ones are cut like their tensors.
using NodeCost = std::function<int64_t(const Plan& plan, int node)>;
int64_t BruteForceCost(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const std::vector<int>& parts,
                       size_t limit, const std::vector<bool>& may_be_whole,
                       bool operators, const NodeCost& cost);

// The least cost of all plans by their memory, `peak`, without those that need no less
// and cost no less than another. Nothing if there are more than `limit` ways.
std::map<int64_t, int64_t> BruteForceFrontier(
    const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
    const std::vector<int>& parts, size_t limit, const std::vector<bool>& may_be_whole,
    bool operators, const NodeCost& cost,
    const std::function<int64_t(const Plan&)>& peak);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_BRUTE_FORCE_H_
