// The problem that a search of one plan solves, and the best solution yet: what the
// improvers that recursive_search.h lists hand on.
//
// An improver is a function (problem, solution) -> solution that costs no more. None
// keeps anything between two calls but the tables of the problem's searcher.
//
// Position:   made by recursive_search.h from the classes of coalesce.h.
#ifndef TOFU_PASSES_SEARCH_PLAN_PROBLEM_H_
#define TOFU_PASSES_SEARCH_PLAN_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/class_cuts.h"
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
  Objective objective;
  int64_t max_table = int64_t{1} << 20;
  // A plan of these parts. A joint search improves it, if one is possible, whatever the
  // method.
  const Plan* start = nullptr;
  // A limit within which `start` is searched again, and nothing else; null: none.
  const MemoryLimit* memory = nullptr;
  // Holds the tables of earlier searches for these parts, restrictions and objective;
  // null: there are none.
  PartitionSearcher* searcher = nullptr;
  // Profiles that an earlier search of this graph told apart, replaced by this search's;
  // null: not kept. Profiles of other parts are not used.
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

// The best cuts yet.
struct Solution {
  ClassCuts cuts;
  int64_t cost = -1;  // none yet
  int64_t lower_bound = 0;
  // Whether each step is optimal, given the earlier ones.
  bool has_optimal_steps = true;

  bool IsProven() const { return cost <= lower_bound; }
};

// The options that all searches of the problem share.
SearchOptions CommonOptions(const PlanProblem& problem);

// Whether the user, or the mode, has decided nothing.
bool IsNothingGiven(const ClassCuts& given);

// Takes back what was decided at one step. Returns these decisions, first of tensors and
// then of operators.
std::vector<int> FreeStep(const PlanProblem& problem, size_t step, ClassCuts* cuts);

// Keeps the cheaper one; of equal ones `best`.
Solution Cheaper(Solution best, SearchResult found);

// Tells who watches what the search does now.
void Tell(const PlanProblem& problem, const Solution& best, const std::string& stage);

// The plan of these cuts, but for search_seconds.
Plan ToPlan(const PlanProblem& problem, const Solution& solution);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_PLAN_PROBLEM_H_
