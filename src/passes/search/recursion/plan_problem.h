// The problem that a search of one plan solves, and its best solution so far, which the
// improvers of recursive_search.h hand on.
//
// An improver is a function (problem, solution) -> solution that costs no more. Improvers
// keep nothing between two calls except the tables of the problem's searcher.
//
// Position:   made by recursive_search.h from the classes of coalesce.h.
#ifndef TOFU_PASSES_SEARCH_RECURSION_PLAN_PROBLEM_H_
#define TOFU_PASSES_SEARCH_RECURSION_PLAN_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/recursion/progress.h"
#include "passes/search/recursion/step_search.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {

enum class Method {
  kRecursion,  // step after step, as in the paper
  kImproved,   // then all steps jointly
  kJoint,      // all steps at once
  kGreedy,     // all steps at once, the largest tensor first (greedy.h)
  kSweep       // improves `start`: all steps at once if that problem is very small, else
               // each step again, given the others
};

struct RecursiveOptions {
  std::vector<int> parts;
  bool may_reorder = false;  // the plan may have the parts in another order
  ClassCuts given;           // a decision or kFree for every class and step
  bool is_proven = true;     // no other given decisions that the mode allows are better
  Method method = Method::kImproved;
  Restrictions restrictions;
  Objective objective;
  int64_t max_table = int64_t{1} << 20;
  // A plan of these parts to improve; null: none. Whatever the method, a joint search
  // improves it if one is possible.
  const Plan* start = nullptr;
  // A memory limit to fit `start` into, by memory_search.h alone; null: none.
  const MemoryLimit* memory = nullptr;
  // A searcher with the tables of earlier searches for these parts, restrictions and
  // objective; null: none.
  PartitionSearcher* searcher = nullptr;
  // Profiles that an earlier search of this graph told apart; this search replaces them
  // by its own. Null: not kept. Profiles of other parts are not used.
  KnownProfiles* known = nullptr;
  // Whether only small joint problems are solved.
  bool is_quick = false;
  Deadline deadline = Deadline::max();
  // Called with "search step 1", ..., "improve" and a readable dump of the result.
  std::function<void(const std::string& name, const std::string& text)> on_search;
  ProgressCallback on_progress;
};

struct PlanProblem {
  const Graph& graph;
  const StrategyTable& table;
  const CoarseGraph& coarse;
  const RecursiveOptions& options;
  PartitionSearcher* searcher;  // with the tables of these parts

  const std::vector<int>& parts() const { return options.parts; }
  const CostModel& model() const { return searcher->model(); }
};

// The best cuts so far.
struct Solution {
  ClassCuts cuts;
  int64_t cost = -1;  // -1: no cuts yet
  int64_t lower_bound = 0;
  // Whether each step is optimal, given the earlier ones.
  bool has_optimal_steps = true;

  bool IsProven() const { return cost <= lower_bound; }
};

// The options that all searches of the problem share.
SearchOptions CommonOptions(const PlanProblem& problem);

// Whether neither the user nor the mode has decided anything.
bool IsNothingGiven(const ClassCuts& given);

// Takes back the decisions of one step, and returns them, those of tensors before those
// of operators.
std::vector<int> FreeStep(const PlanProblem& problem, size_t step, ClassCuts* cuts);

// Returns the cheaper one; `best` if they cost the same.
Solution Cheaper(Solution best, SearchResult found);

// Reports the search's stage to the progress callback.
void Tell(const PlanProblem& problem, const Solution& best, const std::string& stage);

// The plan of the solution's cuts, without its search_seconds.
Plan ToPlan(const PlanProblem& problem, const Solution& solution);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_PLAN_PROBLEM_H_
