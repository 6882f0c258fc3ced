#include "passes/search/make_frontier.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "passes/search/fit_limit.h"
#include "passes/search/modes.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/release_elementwise.h"
#include "passes/search/release_timesteps.h"
#include "passes/search/tilings/class_cuts.h"
#include "passes/search/tilings/memory_limit.h"
#include "solver/explore_limits.h"

namespace tofu {
namespace {

Plan SearchClasses(const PlanRequest& request, const CoarseGraph& classes,
                   bool may_be_whole, KnownProfiles* known = nullptr) {
  RecursiveOptions options = OptionsOf(request, classes, nullptr, may_be_whole);
  options.known = known;
  return SearchRecursively(request.graph, request.table, classes, options);
}

// The plans of these classes that no other plan beats in both cost and memory of tiles.
PlanFrontier Trade(const PlanRequest& request, const CoarseGraph& classes,
                   std::vector<Plan> plans, int max_searches) {
  const bool same_parts = plans[0].parts == plans[1].parts;
  MemoryLimit memory = LimitMemory(request.graph, request.table, classes, 0);
  RecursiveOptions options = OptionsOf(request, classes, &plans[1], true);
  PartitionSearcher searcher(request.graph, request.table, classes, options.parts,
                             options.restrictions, options.objective);
  options.memory = &memory;
  options.searcher = &searcher;
  const auto point = [&](const Plan& plan, int id) {
    const bool is_proven = same_parts && plan.status == PlanStatus::kOptimal;
    const ClassCuts cuts = ClassCutsOf(request.graph, classes, plan);
    return LimitPoint{memory.PeakBytes(cuts.tensors, plan.parts), plan.cost(), is_proven,
                      id};
  };
  const SearchWithin search = [&](int64_t limit, const LimitPoint& best) {
    const Plan fitting = plans[best.id];
    memory.limit_bytes = limit;
    options.start = &fitting;
    plans.push_back(SearchRecursively(request.graph, request.table, classes, options));
    return point(plans.back(), static_cast<int>(plans.size()) - 1);
  };
  std::vector<LimitPoint> known = {point(plans[1], 1)};
  ExploreOptions explore;
  explore.least = memory.LeastBytes(options.parts, options.restrictions);
  explore.max_searches = max_searches;
  explore.deadline = DeadlineOf(request);
  if (explore.least < known[0].used) known.push_back(search(explore.least, known[0]));
  const LimitFrontier trade_off =
      ExploreLimits(point(plans[0], 0), known, explore, search);
  PlanFrontier frontier;
  frontier.is_complete = trade_off.is_complete;
  for (const LimitPoint& each : trade_off.points) {
    frontier.plans.push_back(Finish(request, plans[each.id]));
    frontier.tile_bytes.push_back(each.used);
  }
  return frontier;
}

}  // namespace

PlanFrontier MakeFrontier(const Graph& graph, const StrategyTable& table,
                          const PlanOptions& options, int max_searches,
                          const ProgressCallback& on_progress) {
  const auto start = std::chrono::steady_clock::now();
  CheckOptions(options);
  TOFU_CHECK_USER(
      ImprovesSteps(options.mode) && options.memory_limit_bytes == 0 && max_searches >= 1,
      Blame::kPlan)
      << "plan: found mode \"" << options.mode << "\", a memory limit of "
      << options.memory_limit_bytes << " bytes and " << max_searches
      << " searches for a frontier, expected mode \"tofu\", no limit and at least 1";
  const Groups groups = GroupForwardBackward(graph, table);
  const PassCallback on_pass;
  const PlanRequest request{graph, table, groups, options, start, on_pass, on_progress};

  const bool are_apart = options.allow_replication;
  const CoarseGraph merged = MergedClasses(request, are_apart);
  KnownProfiles known;
  Plan unlimited = SearchClasses(request, merged, true, &known);
  unlimited = ReleaseTimesteps(request, merged, are_apart, std::move(unlimited));
  unlimited =
      ReleaseElementwise(request, merged, are_apart, std::move(unlimited), &known);
  const CoarseGraph within = ClassesWithin(request, merged, are_apart, unlimited);
  const bool is_within = CutsAlike(within, unlimited);
  const std::vector<Plan> plans = {
      is_within ? unlimited : SearchClasses(request, within, true),
      SearchClasses(request, within, false)};
  PlanFrontier frontier = Trade(request, within, plans, max_searches);
  if (!is_within && unlimited.cost() < plans[0].cost()) {
    const CoarseGraph fine = UnmergedClasses(request, are_apart);
    frontier.tile_bytes.push_back(PeakTileBytes(request, fine, unlimited));
    frontier.plans.push_back(Finish(request, std::move(unlimited)));
    frontier.is_complete = false;
  }
  return frontier;
}

}  // namespace tofu
