#include "passes/search/plan_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "passes/search/modes.h"
#include "passes/search/pins.h"
#include "passes/search/recursion/dump.h"
#include "passes/search/recursion/recursive_search.h"
#include "passes/search/tilings/memory_limit.h"
#include "solver/problem/choice_problem.h"

namespace tofu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxTimeLimitS = 1e6;

// Joins quoted names as in: "a", "b" or "c".
std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 < names.size() ? ", " : " or ";
    text += '"' + names[i] + '"';
  }
  return text;
}

UpdateTies TiesOf(const PlanOptions& options, bool may_be_whole) {
  return options.tie_updates ? UpdateTies::kAll
                             : UpdateTiesOf(options.mode, may_be_whole);
}

}  // namespace

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

std::vector<int> PartsOf(const PlanOptions& options) {
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

CoarseGraph MergedClasses(const PlanRequest& request, bool may_be_whole,
                          const std::vector<bool>& released) {
  // Only a graph without timesteps releases operators.
  return Coalesce(
      request.graph, request.table, request.groups,
      {true, released.empty(), released, TiesOf(request.options, may_be_whole),
       SumsWaitOf(request.options.mode, may_be_whole),
       PinnedEntries(request.graph, request.options.pins,
                     PartsOf(request.options).size())});
}

CoarseGraph UnmergedClasses(const PlanRequest& request, bool may_be_whole) {
  return Coalesce(request.graph, request.table, request.groups,
                  {false,
                   false,
                   {},
                   TiesOf(request.options, may_be_whole),
                   SumsWaitOf(request.options.mode, may_be_whole)});
}

bool HasTimesteps(const CoarseGraph& coarse) {
  return std::any_of(coarse.ties.begin(), coarse.ties.end(),
                     [](const Tie& tie) { return tie.reason == Tie::Reason::kTimestep; });
}

bool CountsOperators(const PlanRequest& request, const CoarseGraph& coarse) {
  return MakeCostModel(request.options.objective, request.graph, request.table, coarse,
                       PartsOf(request.options))
      ->CountsOperators();
}

Deadline DeadlineOf(const PlanRequest& request) {
  const double seconds = std::min(request.options.time_limit_s, kMaxTimeLimitS);
  return request.start + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(seconds));
}

RecursiveOptions OptionsOf(const PlanRequest& request, const CoarseGraph& coarse,
                           const Plan* start, bool may_be_whole) {
  const PlanOptions& options = request.options;
  RecursiveOptions recursive;
  recursive.parts = start == nullptr ? PartsOf(options) : start->parts;
  recursive.may_reorder = start == nullptr && options.parts.empty();
  recursive.given.tensors =
      ResolvePins(request.graph, coarse, options.pins, recursive.parts);
  recursive.restrictions.equal_tiles = options.equal_tiles;
  recursive.given.operators.assign(coarse.operators.size(),
                                   Cuts(recursive.parts.size(), kFree));
  if (may_be_whole) {
    // If the objective counts operators, whole ones are not free, and none is forbidden.
    const bool counts = CountsOperators(request, coarse);
    recursive.restrictions.may_be_whole =
        counts ? std::vector<bool>(coarse.tensors.size(), true)
               : ReplicableTensors(request.graph, request.table, coarse);
    recursive.restrictions.operators_may_be_whole = counts;
    recursive.restrictions.light_may_be_whole = true;
    AllowUnevenBatch(request.graph, request.table, coarse, &recursive.restrictions);
  }
  recursive.objective = options.objective;
  recursive.max_table = options.max_table;
  recursive.deadline = DeadlineOf(request);
  SetMode(options.mode, request.graph, request.table, coarse, &recursive);
  recursive.start = start;
  recursive.is_quick = start != nullptr;
  if (start == nullptr) recursive.on_search = request.on_pass;
  recursive.on_progress = request.on_progress;
  return recursive;
}

void TellRelease(const PlanRequest& request, const Plan& before, const Plan& released) {
  if (!request.on_pass) return;
  request.on_pass("release", DumpImprovement(before.cost(), released.cost(),
                                             released.lower_bound(), released.unit()));
}

Plan Finish(const PlanRequest& request, Plan plan) {
  plan.mode = request.options.mode;
  plan.search_seconds =
      std::chrono::duration<double>(Clock::now() - request.start).count();
  if (request.on_pass) {
    request.on_pass("plan", DumpPlan(request.graph, request.table, plan));
  }
  return plan;
}

}  // namespace tofu
