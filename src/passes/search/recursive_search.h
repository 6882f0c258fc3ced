// Partitions a graph over k workers, one step at a time (paper section 5.2), and then
// improves the steps together.
//
// k = k_1 * k_2 * ... with k_i >= k_(i+1). Step i cuts every tensor along one
// dimension in k_i parts, given the tiles and regions that the earlier steps
// left. Tiles are nested and contiguous, so the order of steps matters if a
// tensor is cut twice along a dimension, contrary to the paper's Theorem 1.
// So Method::kImproved also
//   - tries other orders of steps with equal parts and, if the options allow
//     it, with unequal parts;
//   - decides each step again, and each two steps together, given the others, until
//     nothing improves;
//   - solves the joint problem over all steps (joint_search.h).
//
// Bounds. Later steps only add to what the first one needs: their groups are parts of its
// groups, and a part of a group that owns no more has to fetch no less. So the first
// step's optimum bounds every plan, unless operators reduce an output in different ways.
// joint_search.h has better bounds, without that exception.
//
// The other methods decide all steps at once, exactly or greedily.
//
// Input:      a graph, its table and classes; the parts; what is given.
// Output:     the plan; kImproved never costs more than the recursion.
// Errors:     UserError(kPlan) if the problem of all steps at once is too large.
// Position:   after coalesce; partition reads the plan.
// Deadline:   after it no search starts except the recursion's own, which then
//             decides quickly (step_search.h).
// Complexity: one search (step_search.h) per step; at most kMaxSearches more to
//             improve, which share most of their tables with earlier ones.
#ifndef TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/progress.h"
#include "passes/search/step_search.h"

namespace tofu {

enum class Method {
  kRecursion,  // step after step, as in the paper
  kImproved,   // then all steps jointly
  kJoint,      // all steps at once
  kGreedy,     // all steps at once, the largest tensor first (greedy.h)
  kSweep       // from `start`: all steps at once if that is very small, else each step
               // again, given the others
};

struct RecursiveOptions {
  std::vector<int> parts;
  bool may_reorder = false;  // the plan may have the parts in another order
  ClassCuts given;           // a decision or kFree for every class and step
  bool is_proven = true;     // that no other decisions of the mode are better
  Method method = Method::kImproved;
  Restrictions restrictions;
  const TimeModel* time = nullptr;  // the objective; null: bytes
  int64_t max_table = int64_t{1} << 20;
  // A plan of these parts. A joint search improves it, if one is possible, whatever the
  // method.
  const Plan* start = nullptr;
  // A limit within which `start` is searched again, and nothing else; null: none.
  const MemoryLimit* memory = nullptr;
  // Holds the tables of earlier searches for these parts, restrictions and objective;
  // null: there are none.
  PartitionSearcher* searcher = nullptr;
  // What an earlier search of this graph told apart, and then what this one did; null:
  // not kept. What belongs to other parts is not used.
  KnownProfiles* known = nullptr;
  // Whether only small joint problems are solved.
  bool is_quick = false;
  Deadline deadline = Deadline::max();
  // Called with "search step 1", ..., "improve" and a readable dump of the result.
  std::function<void(const std::string& name, const std::string& text)> on_search;
  ProgressCallback on_progress;
};

// Sets everything in the plan except search_seconds.
Plan SearchRecursively(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const RecursiveOptions& options);

// The prime factors of `workers`, largest first.
std::vector<int> PrimeFactors(int workers);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSIVE_SEARCH_H_
