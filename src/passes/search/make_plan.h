// From a training graph to its plan: the paper's sections 5.1 and 5.2 as a
// sequence of passes.
//
// Errors: UserError(kPlan) for invalid options.
#ifndef TOFU_PASSES_SEARCH_MAKE_PLAN_H_
#define TOFU_PASSES_SEARCH_MAKE_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/search/cost_model.h"
#include "passes/search/progress.h"

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
  // Whether gradients and optimizer states are cut like their parameter where it stays
  // whole, too, as PyTorch's optimizers need.
  bool tie_updates = false;
  // What the tiles of a worker may take at any moment, fetched regions not counted
  // (memory_limit.h); 0: any size. Only for modes that improve steps.
  int64_t memory_limit_bytes = 0;
  // Where it counts operators, allow_replication lets these stay whole, too: all workers
  // compute the same.
  Objective objective;
  // Whether to decide once for what is partitioned alike (coalesce.h).
  bool coarsen = true;
  double time_limit_s = 60;
  int64_t max_table = int64_t{1} << 20;  // cells; the search is exact below it
};

// Called after every pass with its name ("group", "coalesce", "search step 1",
// ..., "plan") and a readable dump of its result.
using PassCallback =
    std::function<void(const std::string& name, const std::string& dump)>;

Plan MakePlan(const Graph& graph, const StrategyTable& table, const PlanOptions& options,
              const PassCallback& on_pass = nullptr,
              const ProgressCallback& on_progress = nullptr);

// The plans that no other one found beats in both cost and memory, by ascending memory.
struct PlanFrontier {
  std::vector<Plan> plans;
  std::vector<int64_t> tile_bytes;  // [plan]: the most that a worker's tiles take
  // Whether they are all there are, each with the proven least cost. If not, a plan that
  // takes at most tile_bytes[i] costs at least plans[i].lower_bound().
  bool is_complete = false;
};

// Searches within at most so many memory limits, all within the time limit. Tensors may
// stay whole whatever the options say.
PlanFrontier MakeFrontier(const Graph& graph, const StrategyTable& table,
                          const PlanOptions& options, int max_searches,
                          const ProgressCallback& on_progress = nullptr);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MAKE_PLAN_H_
