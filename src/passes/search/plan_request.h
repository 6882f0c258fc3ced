// Holds the input of all stages of one search: the graph, the user's options, the clock
// and the callbacks.
//
// Errors:     UserError(kPlan) for invalid options.
// Position:   made by make_plan.h and make_frontier.h, which list the stages.
#ifndef TOFU_PASSES_SEARCH_PLAN_REQUEST_H_
#define TOFU_PASSES_SEARCH_PLAN_REQUEST_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/coarsen/group.h"
#include "passes/search/cost/cost_model.h"
#include "passes/search/recursion/plan_problem.h"
#include "passes/search/recursion/progress.h"

namespace tofu {

struct PlanOptions {
  int workers = 1;
  // Parts of the steps, whose product is `workers`; empty: the prime factors,
  // largest first.
  std::vector<int> parts;
  // Tensor -> dimension that each step must cut (-1: whole); see pins.h.
  std::map<std::string, std::vector<int>> pins;
  std::string mode = "tofu";  // one of SearchModes() (modes.h)
  // Tensors may stay whole at any step where that is cheaper.
  bool allow_replication = false;
  // Whether gradients and optimizer states stay whole with their parameter, too, as
  // PyTorch's optimizers need.
  bool tie_updates = false;
  // Whether all tiles of a tensor must have one size, as PyTorch's programs need.
  bool equal_tiles = false;
  // The bytes that a worker's tiles may take at any moment, without fetched regions
  // (memory_limit.h); 0: no limit. Only for modes that improve steps.
  int64_t memory_limit_bytes = 0;
  // If the objective counts operators, allow_replication lets operators stay whole, too:
  // then all workers compute the same.
  Objective objective;
  // Whether to decide once for each class of tensors and operators (coalesce.h).
  bool coarsen = true;
  double time_limit_s = 60;
  int64_t max_table = int64_t{1} << 20;  // cells; the search is exact below it
};

// Called after every pass with its name ("group", "coalesce", "search step 1",
// ..., "plan") and a readable dump of its result.
using PassCallback =
    std::function<void(const std::string& name, const std::string& dump)>;

struct PlanRequest {
  const Graph& graph;
  const StrategyTable& table;
  const Groups& groups;
  const PlanOptions& options;
  const std::chrono::steady_clock::time_point start;
  const PassCallback& on_pass;
  const ProgressCallback& on_progress;
};

void CheckOptions(const PlanOptions& options);

// The classes of the first search, and the classes in which nothing is merged to make the
// search small. Updates are cut apart only if tensors may stay whole (modes.h).
// `released`: [node], as in coalesce.h.
CoarseGraph MergedClasses(const PlanRequest& request, bool may_be_whole,
                          const std::vector<bool>& released = {});
CoarseGraph UnmergedClasses(const PlanRequest& request, bool may_be_whole);

// Whether timesteps are merged.
bool HasTimesteps(const CoarseGraph& coarse);
// Whether the request's objective counts operators (cost_model.h).
bool CountsOperators(const PlanRequest& request, const CoarseGraph& coarse);

Deadline DeadlineOf(const PlanRequest& request);
// The user's parts, or the prime factors.
std::vector<int> PartsOf(const PlanOptions& options);

// The options of a search of these classes under the request's mode and pins. `start`: a
// plan to improve; null: none.
RecursiveOptions OptionsOf(const PlanRequest& request, const CoarseGraph& coarse,
                           const Plan* start, bool may_be_whole);

// Reports how a release changed the plan's cost.
void TellRelease(const PlanRequest& request, const Plan& before, const Plan& released);

// The plan with its mode and the time since the start.
Plan Finish(const PlanRequest& request, Plan plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_PLAN_REQUEST_H_
