#include "passes/search/make_plan.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "passes/search/allow_whole.h"
#include "passes/search/fit_limit.h"
#include "passes/search/modes.h"
#include "passes/search/recursion/dump.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/release_elementwise.h"
#include "passes/search/release_timesteps.h"

namespace tofu {
namespace {

void TellClasses(const PlanRequest& request, const CoarseGraph& coarse) {
  if (request.on_pass) request.on_pass("coalesce", DumpClasses(request.graph, coarse));
}

// The plan of these parts in this order. A quick search finds only a cost to compare.
Plan FindInOrder(const PlanRequest& request, const CoarseGraph& merged, bool may_be_whole,
                 const std::vector<int>& parts, bool is_quick) {
  KnownProfiles known;
  RecursiveOptions options = OptionsOf(request, merged, nullptr, may_be_whole);
  options.parts = parts;
  options.may_reorder = false;
  options.is_quick = is_quick;
  options.known = &known;
  Plan plan = SearchRecursively(request.graph, request.table, merged, options);
  plan = ReleaseTimesteps(request, merged, may_be_whole, std::move(plan));
  if (is_quick) return SweepReleased(request, merged, may_be_whole, std::move(plan));
  return ReleaseElementwise(request, merged, may_be_whole, std::move(plan), &known);
}

// The cheapest plan of any order of the parts. Orders other than the request's are
// searched in full only if a quick search of theirs finds a cheaper plan: which order is
// the cheapest may change with releases.
Plan FindInOrders(const PlanRequest& request, const CoarseGraph& merged,
                  bool may_be_whole) {
  const RecursiveOptions options = OptionsOf(request, merged, nullptr, may_be_whole);
  Plan best = FindInOrder(request, merged, may_be_whole, options.parts, false);
  const PassCallback no_pass;
  ProgressCallback on_progress;
  if (request.on_progress) {
    on_progress = [&](const SearchProgress&) {
      request.on_progress({"other orders of the parts", best.cost(), best.lower_bound()});
    };
  }
  const PlanRequest quiet{request.graph, request.table, request.groups, request.options,
                          request.start, no_pass,       on_progress};
  for (const std::vector<int>& parts : OtherOrders(options)) {
    for (const bool is_quick : {true, false}) {
      if (best.cost() == 0 || IsPast(DeadlineOf(request))) return best;
      Plan plan = FindInOrder(quiet, merged, may_be_whole, parts, is_quick);
      if (plan.cost() >= best.cost()) break;
      best = std::move(plan);
    }
  }
  return best;
}

// Runs the stages that find a plan in which tensors may stay whole, or may not. `peak`
// tells the memory of its tiles, which may exceed the request's limit.
Plan FindPlan(const PlanRequest& request, bool may_be_whole, int64_t* peak) {
  if (!request.options.coarsen) {
    const CoarseGraph coarse = UnmergedClasses(request, may_be_whole);
    TellClasses(request, coarse);
    return SearchRecursively(request.graph, request.table, coarse,
                             OptionsOf(request, coarse, nullptr, may_be_whole));
  }
  const CoarseGraph merged = MergedClasses(request, may_be_whole);
  TellClasses(request, merged);
  Plan plan = FindInOrders(request, merged, may_be_whole);
  const int64_t limit = request.options.memory_limit_bytes;
  if (limit == 0) return plan;
  const CoarseGraph fine = UnmergedClasses(request, may_be_whole);
  *peak = PeakTileBytes(request, fine, plan);
  if (*peak <= limit) return plan;
  const CoarseGraph within = ClassesWithin(request, merged, may_be_whole, plan);
  plan = FitLimit(request, within, may_be_whole, plan);
  *peak = PeakTileBytes(request, within, plan);
  return plan;
}

// The plan without whole tensors; empty if none fits the limit.
std::optional<Plan> FindCut(const PlanRequest& request, const Plan& best) {
  const PassCallback no_pass;
  ProgressCallback on_progress;
  if (request.on_progress) {
    on_progress = [&](const SearchProgress&) {
      request.on_progress(
          {"plans without whole tensors", best.cost(), best.lower_bound()});
    };
  }
  const PlanRequest quiet{request.graph, request.table, request.groups, request.options,
                          request.start, no_pass,       on_progress};
  int64_t peak = 0;
  Plan plan = FindPlan(quiet, false, &peak);
  const int64_t limit = request.options.memory_limit_bytes;
  if (peak > limit) return std::nullopt;
  return plan;
}

// Whether the plan's proof also covers plans without whole tensors: there is one order of
// the parts, and the stages after the first search release nothing.
bool IsProvenForAll(const PlanRequest& request, const Plan& plan) {
  if (plan.cost() == 0) return true;
  if (plan.status != PlanStatus::kOptimal || plan.parts.empty()) return false;
  for (int part : plan.parts) {
    if (part != plan.parts[0] && request.options.parts.empty()) return false;
  }
  const PlanOptions& options = request.options;
  if (!ReleasesMerges(options.mode) || !options.coarsen) return true;
  const CoarseGraph merged = MergedClasses(request, true);
  return !HasTimesteps(merged) && CountsOperators(request, merged);
}

}  // namespace

Plan MakePlan(const Graph& graph, const StrategyTable& table, const PlanOptions& options,
              const PassCallback& on_pass, const ProgressCallback& on_progress) {
  const auto start = std::chrono::steady_clock::now();
  CheckOptions(options);
  const Groups groups = GroupForwardBackward(graph, table);
  if (on_pass) on_pass("group", DumpGroups(graph, groups));
  const PlanRequest request{graph, table, groups, options, start, on_pass, on_progress};

  int64_t peak = 0;
  Plan plan = FindPlan(request, options.allow_replication, &peak);
  if (options.allow_replication && !IsProvenForAll(request, plan) &&
      (peak > options.memory_limit_bytes || MayCutCostLess(request, plan))) {
    const std::optional<Plan> cut = FindCut(request, plan);
    if (cut && peak > options.memory_limit_bytes) {
      plan = *cut;
      plan.status = PlanStatus::kFeasible;  // plans with whole tensors may cost less
      plan.SetLowerBound(0);
      peak = options.memory_limit_bytes;
    }
    if (cut) plan = AllowWhole(request, std::move(plan), *cut);
  }
  TOFU_CHECK_USER(peak <= options.memory_limit_bytes, Blame::kPlan)
      << "plan: found no plan whose tiles take " << options.memory_limit_bytes
      << " bytes or less on a worker; the least found is " << peak
      << "; use more workers, a smaller batch or a higher limit";
  return Finish(request, std::move(plan));
}

}  // namespace tofu
