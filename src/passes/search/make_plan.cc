#include "passes/search/make_plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "passes/coarsen/coalesce.h"
#include "passes/coarsen/group.h"
#include "passes/search/dump.h"
#include "passes/search/modes.h"
#include "passes/search/pins.h"
#include "passes/search/recursive_search.h"

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

  // `better`: a plan of fewer classes to improve; null: none.
  Plan Run(const CoalesceOptions& merged, const Plan* better) const {
    const CoarseGraph coarse = Coalesce(graph, table, groups, merged);
    if (on_pass && better == nullptr) on_pass("coalesce", DumpClasses(graph, coarse));
    RecursiveOptions recursive;
    recursive.parts = better == nullptr ? Parts(options) : better->parts;
    recursive.may_reorder = better == nullptr && options.parts.empty();
    recursive.given.tensors = ResolvePins(graph, coarse, options.pins, recursive.parts);
    recursive.given.operators.assign(coarse.operators.size(),
                                     Cuts(recursive.parts.size(), kFree));
    if (options.allow_replication) {
      recursive.restrictions.may_be_whole =
          options.time == nullptr ? ReplicableTensors(graph, coarse)
                                  : std::vector<bool>(coarse.tensors.size(), true);
      recursive.restrictions.operators_may_be_whole = options.time != nullptr;
    }
    SetMode(options.mode, graph, table, coarse, &recursive);
    recursive.time = options.time;
    recursive.max_table = options.max_table;
    recursive.deadline = Limit();
    recursive.start = better;
    recursive.is_quick = better != nullptr;
    if (better == nullptr) recursive.on_search = on_pass;
    recursive.on_progress = on_progress;
    return SearchRecursively(graph, table, coarse, recursive);
  }

  // Decides again, starting from the plan, what was merged for the search's sake: the
  // timesteps, and the element-wise operators among them.
  Plan Release(Plan plan) const {
    if (!ReleasesTimesteps(options.mode) || plan.parts.size() < 2) return plan;
    if (plan.cost() == 0 || Clock::now() > Limit()) return plan;
    const CoarseGraph coarse = Coalesce(graph, table, groups);
    const auto is_timestep = [](const Tie& tie) {
      return tie.reason == Tie::Reason::kTimestep;
    };
    if (std::none_of(coarse.ties.begin(), coarse.ties.end(), is_timestep)) return plan;
    if (on_progress) {
      on_progress({"releasing timesteps", plan.cost(), plan.lower_bound()});
    }
    Plan released = Run({false, false}, &plan);
    if (on_pass) {
      on_pass("release",
              DumpImprovement(plan.cost(), released.cost(), released.lower_bound(),
                              options.time == nullptr ? "bytes" : "ns"));
    }
    return released.cost() < plan.cost() || released.status == PlanStatus::kOptimal
               ? released
               : plan;
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
  if (!options.coarsen) return search.Finish(search.Run({false, false}, nullptr));
  const Plan coarse = search.Run({true, true}, nullptr);
  return search.Finish(search.Release(coarse));
}

}  // namespace tofu
