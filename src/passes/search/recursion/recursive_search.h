// Partitions a graph over k workers, one step at a time (paper section 5.2), and then
// improves the steps together.
//
// k = k_1 * k_2 * ... with k_i >= k_(i+1). Step i cuts every tensor along one
// dimension in k_i parts, given the tiles and regions that the earlier steps left.
//
// Improvers, in the order in which they run; each hands its solution on (plan_problem.h):
//   1. decide_steps     one step after the other, the paper's recursion
//   2. joint_search     all steps together, with bounds of every plan
//   3. reorder_steps    other orders of steps with equal parts
//   4. sweep_pairs      every two steps again
//   5. (here)           the same for other orders of unequal parts
// A search that starts from a plan of other classes runs joint_search, and sweep_steps if
// the method says so; within a memory limit it runs memory_search. Methods without a
// recursion run decide_together alone.
//
// Input:      a graph, its table and classes; the parts; given decisions.
// Output:     the plan; no improver makes it dearer.
// Errors:     UserError(kPlan) if the problem of all steps at once is too large.
// Position:   after coalesce; partition reads the plan.
// Deadline:   after it no search starts except the recursion's own, which then
//             decides quickly (step_search.h).
// Complexity: one search (step_search.h) per step; at most kMaxSearches more to
//             improve, which share most of their tables with earlier ones.
#ifndef TOFU_PASSES_SEARCH_RECURSION_RECURSIVE_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSION_RECURSIVE_SEARCH_H_

#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/recursion/plan_problem.h"

namespace tofu {

// Sets everything in the plan except search_seconds.
Plan SearchRecursively(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const RecursiveOptions& options);

// The orders of unequal parts to try besides the options' own, because nested tiles
// depend on the order. The options' own wins ties.
std::vector<std::vector<int>> OtherOrders(const RecursiveOptions& options);

// The prime factors of `workers`, largest first.
std::vector<int> PrimeFactors(int workers);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_RECURSIVE_SEARCH_H_
