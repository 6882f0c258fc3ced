// Partitions a graph over k workers, one step after the other (paper section
// 5.2), and then improves the steps jointly.
//
// k = k_1 * k_2 * ... with k_i >= k_(i+1). Step i cuts every tensor along one
// dimension in k_i parts, given the tiles and regions that the earlier steps
// left. Nested tiles are contiguous, so that the order of steps matters where
// a tensor is cut twice along a dimension, against the paper's Theorem 1.
// Hence, with Method::kImproved:
//   - steps of equal parts are also tried in other orders, and, where the
//     options allow it, those of unequal parts;
//   - each step is decided anew, the others given, until nothing improves;
//   - where the joint problem over all steps is small, it is solved exactly.
//
// Bounds. What the first j steps must communicate, the later ones only add to:
// their groups are parts of these groups, and a part of a group that owns no more
// has to fetch no less. So the least cost of steps 1 .. j, decided jointly, bounds
// every plan of all steps. j = 1 is the recursion's first step, j = n the optimum
// itself; with bound_jointly, j grows as far as time allows.
//
// The other methods decide all steps at once, exactly or greedily.
//
// Input:      a graph, its table and classes; the parts; what is given.
// Output:     the plan: kImproved is never dearer than the recursion.
// Errors:     UserError(kPlan) where all steps at once are too large a problem.
// Position:   after coalesce; partition reads the plan.
// Deadline:   past it no search is begun but the recursion's own, which then
//             decide in haste (step_search.h).
// Complexity: a search (step_search.h) a step; the improvement at most kMaxSearches
//             more, which share most of their tables with those before.
#ifndef TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/step_search.h"

namespace tofu {

enum class Method {
  kRecursion,  // step after step, as the paper
  kImproved,   // then all steps jointly
  kJoint,      // all steps at once
  kGreedy,     // all steps at once, the largest tensor first (greedy.h)
};

struct RecursiveOptions {
  std::vector<int> parts;
  bool may_reorder = false;  // the plan's steps may have the parts in another order
  ClassCuts given;           // a decision or kFree for every class and step
  Method method = Method::kImproved;
  Restrictions restrictions;
  int64_t max_table = int64_t{1} << 20;
  // Spends what is left of the time on a joint bound.
  bool bound_jointly = false;
  Deadline deadline = Deadline::max();
  // Called with "search step 1", ..., "improve" and what was found.
  std::function<void(const std::string& name, const std::string& text)> on_search;
};

// Sets all of the plan but search_seconds.
Plan SearchRecursively(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const RecursiveOptions& options);

// The prime factors of `workers`, largest first.
std::vector<int> PrimeFactors(int workers);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_
