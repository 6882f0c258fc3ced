#include "passes/search/make_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "passes/coarsen/coalesce.h"
#include "passes/coarsen/group.h"
#include "passes/search/class_cuts.h"
#include "passes/search/dump.h"
#include "passes/search/memory_limit.h"
#include "passes/search/modes.h"
#include "passes/search/pins.h"
#include "passes/search/recursive_search.h"
#include "passes/search/released_operators.h"
#include "solver/explore_limits.h"
#include "solver/limited_problem.h"

namespace tofu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxTimeLimitS = 1e6;

// "a", "b" or "c".
std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 < names.size() ? ", " : " or ";
    text += '"' + names[i] + '"';
  }
  return text;
}

void CheckOptions(const PlanOptions& options) {
  TOFU_CHECK_USER(options.workers >= 1 && options.workers <= kMaxWorkers, Blame::kPlan)
      << "plan: found " << options.workers << " workers, expected 1 to " << kMaxWorkers
      << "; set the number of workers";
  TOFU_CHECK_USER(IsSearchMode(options.mode), Blame::kPlan)
      << "plan: found mode \"" << options.mode << "\", expected " << Joined(SearchModes())
      << "; choose one of them";
  TOFU_CHECK_USER(std::isfinite(options.time_limit_s) && options.time_limit_s > 0,
                  Blame::kPlan)
      << "plan: found a time limit of " << options.time_limit_s
      << " s, expected more than 0; set it in seconds";
  TOFU_CHECK_USER(options.memory_limit_bytes >= 0 &&
                      options.memory_limit_bytes < kUnlimited &&
                      (options.memory_limit_bytes == 0 || ImprovesSteps(options.mode)),
                  Blame::kPlan)
      << "plan: found a memory limit of " << options.memory_limit_bytes
      << " bytes with mode \"" << options.mode
      << "\", expected a size of 1 byte or more, and mode \"tofu\"";
  TOFU_CHECK_USER(
      !options.tie_updates || UpdateTiesOf(options.mode, false) == UpdateTies::kAll,
      Blame::kPlan)
      << "plan: found mode \"" << options.mode << "\", which cuts optimizer states apart "
      << "from their parameters, expected one that cuts them alike, as PyTorch's "
      << "optimizers need, such as \"data-parallel\" or \"zero-3\"";
  TOFU_CHECK_USER(options.max_table >= 2, Blame::kPlan)
      << "plan: found max_table " << options.max_table << ", expected at least 2 cells";
}

std::vector<int> Parts(const PlanOptions& options) {
  if (options.parts.empty()) return PrimeFactors(options.workers);
  int64_t product = 1;
  for (int part : options.parts) {
    TOFU_CHECK_USER(part >= 2 && part <= kMaxWorkers, Blame::kPlan)
        << "plan: found a step of " << part << " parts, expected at least 2";
    product = product * part;
    if (product > kMaxWorkers) break;
  }
  TOFU_CHECK_USER(product == options.workers, Blame::kPlan)
      << "plan: found parts whose product is " << product << ", expected "
      << options.workers << ", the number of workers";
  return options.parts;
}

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kMaxTimeLimitS)));
}

// The searches for one plan, whose classes are more and more.
struct PlanSearch {
  const Graph& graph;
  const StrategyTable& table;
  const Groups& groups;
  const PlanOptions& options;
  const Clock::time_point start;
  const PassCallback& on_pass;
  const ProgressCallback& on_progress;

  UpdateTies Ties() const {
    return options.tie_updates ? UpdateTies::kAll
                               : UpdateTiesOf(options.mode, options.allow_replication);
  }
  CoalesceOptions Merged() const { return {true, true, {}, Ties()}; }
  CoalesceOptions NothingMerged() const { return {false, false, {}, Ties()}; }

  // The best plan of these classes.
  Plan Run(const CoarseGraph& coarse, KnownProfiles* known = nullptr) const {
    if (on_pass) on_pass("coalesce", DumpClasses(graph, coarse));
    RecursiveOptions recursive = Options(coarse, nullptr, options.allow_replication);
    recursive.known = known;
    return SearchRecursively(graph, table, coarse, recursive);
  }

  // `better`: a plan of fewer classes to improve; null: none.
  Plan Run(const CoarseGraph& coarse, const Plan* better, bool allow_replication,
           const MemoryLimit* memory) const {
    RecursiveOptions recursive = Options(coarse, better, allow_replication);
    recursive.memory = memory;
    return SearchRecursively(graph, table, coarse, recursive);
  }

  RecursiveOptions Options(const CoarseGraph& coarse, const Plan* better,
                           bool allow_replication) const {
    RecursiveOptions recursive;
    recursive.parts = better == nullptr ? Parts(options) : better->parts;
    recursive.may_reorder = better == nullptr && options.parts.empty();
    recursive.given.tensors = ResolvePins(graph, coarse, options.pins, recursive.parts);
    recursive.given.operators.assign(coarse.operators.size(),
                                     Cuts(recursive.parts.size(), kFree));
    if (allow_replication) {
      const bool counts = CountsOperators(coarse);
      recursive.restrictions.may_be_whole =
          counts ? std::vector<bool>(coarse.tensors.size(), true)
                 : ReplicableTensors(graph, coarse);
      recursive.restrictions.operators_may_be_whole = counts;
      recursive.restrictions.moves_may_be_whole = true;
    }
    recursive.objective = options.objective;
    recursive.max_table = options.max_table;
    recursive.deadline = Limit();
    SetMode(options.mode, graph, table, coarse, &recursive);
    recursive.start = better;
    recursive.is_quick = better != nullptr;
    if (better == nullptr) recursive.on_search = on_pass;
    recursive.on_progress = on_progress;
    return recursive;
  }

  // The best plan with merged classes within the memory limit.
  Plan RunWithinLimit() const {
    const CoarseGraph coarse = Coalesce(graph, table, groups, Merged());
    if (on_pass) on_pass("coalesce", DumpClasses(graph, coarse));
    Plan any = Run(coarse, nullptr, options.allow_replication, nullptr);
    const MemoryLimit memory =
        LimitMemory(graph, table, coarse, options.memory_limit_bytes);
    const auto peak = [&](const Plan& plan) {
      return memory.PeakBytes(ClassCutsOf(graph, coarse, plan).tensors, plan.parts);
    };
    if (peak(any) <= memory.limit_bytes) return any;
    const Plan cut =
        options.allow_replication ? Run(coarse, nullptr, false, nullptr) : any;
    Plan plan = Run(coarse, &cut, options.allow_replication, &memory);
    const int64_t needed = peak(plan);
    TOFU_CHECK_USER(needed <= memory.limit_bytes, Blame::kPlan)
        << "plan: found no plan whose tiles take " << memory.limit_bytes
        << " bytes or less on a worker; the least found is " << needed
        << "; use more workers, a smaller batch or a higher limit";
    if (any.parts == plan.parts) {
      plan.SetLowerBound(std::max(plan.lower_bound(), any.lower_bound()));
    }
    return plan;
  }

  // All plans with merged classes that no other beats in cost and in the memory of tiles.
  PlanFrontier Trade(int max_searches) const {
    const CoarseGraph coarse = Coalesce(graph, table, groups, Merged());
    if (on_pass) on_pass("coalesce", DumpClasses(graph, coarse));
    std::vector<Plan> plans = {Run(coarse, nullptr, true, nullptr),
                               Run(coarse, nullptr, false, nullptr)};
    const bool same_parts = plans[0].parts == plans[1].parts;
    MemoryLimit memory = LimitMemory(graph, table, coarse, 0);
    RecursiveOptions recursive = Options(coarse, &plans[1], true);
    PartitionSearcher searcher(graph, table, coarse, recursive.parts,
                               recursive.restrictions, options.objective);
    recursive.memory = &memory;
    recursive.searcher = &searcher;
    const auto point = [&](const Plan& plan, int id) {
      const bool is_proven = same_parts && plan.status == PlanStatus::kOptimal;
      const ClassCuts cuts = ClassCutsOf(graph, coarse, plan);
      return LimitPoint{memory.PeakBytes(cuts.tensors, plan.parts), plan.cost(),
                        is_proven, id};
    };
    const SearchWithin search = [&](int64_t limit, const LimitPoint& best) {
      const Plan fitting = plans[best.id];
      memory.limit_bytes = limit;
      recursive.start = &fitting;
      plans.push_back(SearchRecursively(graph, table, coarse, recursive));
      return point(plans.back(), static_cast<int>(plans.size()) - 1);
    };
    std::vector<LimitPoint> known = {point(plans[1], 1)};
    ExploreOptions explore;
    explore.least = memory.LeastBytes(coarse, recursive.parts);
    explore.max_searches = max_searches;
    explore.deadline = Limit();
    if (explore.least < known[0].used) known.push_back(search(explore.least, known[0]));
    const LimitFrontier found = ExploreLimits(point(plans[0], 0), known, explore, search);
    PlanFrontier frontier;
    frontier.is_complete = found.is_complete;
    for (const LimitPoint& each : found.points) {
      frontier.plans.push_back(Finish(plans[each.id]));
      frontier.tile_bytes.push_back(each.used);
    }
    Plan released = ReleaseTimesteps(coarse, plans[0]);
    if (released.cost() < plans[0].cost()) {
      const CoarseGraph fine = Coalesce(graph, table, groups, NothingMerged());
      frontier.tile_bytes.push_back(
          LimitMemory(graph, table, fine, 0)
              .PeakBytes(ClassCutsOf(graph, fine, released).tensors, released.parts));
      frontier.plans.push_back(Finish(std::move(released)));
      frontier.is_complete = false;
    }
    return frontier;
  }

  bool MayRelease(const Plan& plan) const {
    return ReleasesMerges(options.mode) && plan.cost() > 0 && Clock::now() <= Limit();
  }

  // Decides again, starting from the plan, what `coarse` merged for the search's sake:
  // the timesteps, and the element-wise operators among them.
  Plan ReleaseTimesteps(const CoarseGraph& coarse, Plan plan) const {
    if (!MayRelease(plan) || plan.parts.size() < 2 || !HasTimesteps(coarse)) return plan;
    if (on_progress) {
      on_progress({"releasing timesteps", plan.cost(), plan.lower_bound()});
    }
    const CoarseGraph fine = Coalesce(graph, table, groups, NothingMerged());
    Plan released = Run(fine, &plan, options.allow_replication, nullptr);
    TellRelease(plan, released);
    return released.cost() < plan.cost() || released.status == PlanStatus::kOptimal
               ? released
               : plan;
  }

  // Decides again, starting from the plan, those element-wise operators for which that
  // pays (released_operators.h). Whole tensors would make all workers compute the same.
  Plan ReleaseElementwise(const CoarseGraph& coarse, Plan plan,
                          KnownProfiles* known) const {
    if (!MayRelease(plan) || HasTimesteps(coarse)) return plan;
    if (options.allow_replication || CountsOperators(coarse)) return plan;
    if (on_progress) {
      on_progress({"releasing element-wise operators", plan.cost(), plan.lower_bound()});
    }
    const CoarseGraph fine = Coalesce(graph, table, groups, NothingMerged());
    RecursiveOptions sweep = Options(fine, &plan, false);
    sweep.method = Method::kSweep;
    Plan swept = SearchRecursively(graph, table, fine, sweep);
    const bool is_proven = swept.status == PlanStatus::kOptimal;
    if (swept.cost() >= plan.cost()) {
      if (is_proven) {
        plan.status = PlanStatus::kOptimal;
        plan.SetLowerBound(plan.cost());
      }
      return plan;
    }
    if (is_proven) {
      TellRelease(plan, swept);
      return swept;
    }
    const CoarseGraph some =
        Coalesce(graph, table, groups,
                 {true, false, OperatorsToRelease(graph, table, fine, swept), Ties()});
    // Equal operators of classes that are merged again may be split in equally good ways.
    if (!CutsAlike(some, swept)) return plan;
    RecursiveOptions again = Options(some, &swept, false);
    again.is_quick = false;
    again.known = known;
    Plan released = SearchRecursively(graph, table, some, again);
    TellRelease(plan, released);
    return released.cost() < plan.cost() ? released : plan;
  }

  // Where operators count, those that are whole do, too: nothing has to be forbidden.
  bool CountsOperators(const CoarseGraph& coarse) const {
    return MakeCostModel(options.objective, graph, table, coarse, Parts(options))
        ->CountsOperators();
  }

  static bool HasTimesteps(const CoarseGraph& coarse) {
    return std::any_of(coarse.ties.begin(), coarse.ties.end(), [](const Tie& tie) {
      return tie.reason == Tie::Reason::kTimestep;
    });
  }

  void TellRelease(const Plan& before, const Plan& released) const {
    if (!on_pass) return;
    on_pass("release", DumpImprovement(before.cost(), released.cost(),
                                       released.lower_bound(), released.unit()));
  }

  Clock::time_point Limit() const { return start + Seconds(options.time_limit_s); }

  Plan Finish(Plan plan) const {
    plan.mode = options.mode;
    plan.search_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (on_pass) on_pass("plan", DumpPlan(graph, table, plan));
    return plan;
  }
};

}  // namespace

Plan MakePlan(const Graph& graph, const StrategyTable& table, const PlanOptions& options,
              const PassCallback& on_pass, const ProgressCallback& on_progress) {
  const Clock::time_point start = Clock::now();
  CheckOptions(options);

  const Groups groups = GroupForwardBackward(graph, table);
  if (on_pass) on_pass("group", DumpGroups(graph, groups));

  PlanSearch search{graph, table, groups, options, start, on_pass, on_progress};
  if (!options.coarsen) {
    return search.Finish(
        search.Run(Coalesce(graph, table, groups, search.NothingMerged())));
  }
  if (options.memory_limit_bytes > 0) return search.Finish(search.RunWithinLimit());
  const CoarseGraph coarse = Coalesce(graph, table, groups, search.Merged());
  KnownProfiles known;
  const Plan merged = search.ReleaseTimesteps(coarse, search.Run(coarse, &known));
  return search.Finish(search.ReleaseElementwise(coarse, merged, &known));
}

PlanFrontier MakeFrontier(const Graph& graph, const StrategyTable& table,
                          const PlanOptions& options, int max_searches,
                          const ProgressCallback& on_progress) {
  const Clock::time_point start = Clock::now();
  CheckOptions(options);
  TOFU_CHECK_USER(
      ImprovesSteps(options.mode) && options.memory_limit_bytes == 0 && max_searches >= 1,
      Blame::kPlan)
      << "plan: found mode \"" << options.mode << "\", a memory limit of "
      << options.memory_limit_bytes << " bytes and " << max_searches
      << " searches for a frontier, expected mode \"tofu\", no limit and at least 1";
  const Groups groups = GroupForwardBackward(graph, table);
  const PassCallback on_pass;
  return PlanSearch{graph, table, groups, options, start, on_pass, on_progress}.Trade(
      max_searches);
}

}  // namespace tofu
