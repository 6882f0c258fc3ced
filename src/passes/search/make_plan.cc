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

}  // namespace

Plan MakePlan(const Graph& graph, const StrategyTable& table, const PlanOptions& options,
              const PassCallback& on_pass) {
  const Clock::time_point start = Clock::now();
  CheckOptions(options);

  const Groups groups = GroupForwardBackward(graph, table);
  if (on_pass) on_pass("group", DumpGroups(graph, groups));

  const CoarseGraph coarse = Coalesce(graph, table, groups, {options.coarsen});
  if (on_pass) on_pass("coalesce", DumpClasses(graph, coarse));

  RecursiveOptions recursive;
  recursive.parts = Parts(options);
  recursive.may_reorder = options.parts.empty();
  recursive.given.tensors = ResolvePins(graph, coarse, options.pins, recursive.parts);
  recursive.given.operators.assign(coarse.operators.size(),
                                   Cuts(recursive.parts.size(), kFree));
  if (options.allow_replication) {
    recursive.restrictions.may_be_whole = ReplicableTensors(graph, coarse);
  }
  SetMode(options.mode, graph, table, coarse, &recursive);
  recursive.max_table = options.max_table;
  recursive.bound_jointly = options.bound_jointly;
  recursive.deadline = start + Seconds(options.time_limit_s);
  recursive.on_search = on_pass;
  Plan plan = SearchRecursively(graph, table, coarse, recursive);

  plan.mode = options.mode;
  plan.search_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (on_pass) on_pass("plan", DumpPlan(graph, table, plan));
  return plan;
}

}  // namespace tofu
