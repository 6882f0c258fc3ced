#include "passes/search/recursion/recursive_search.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "passes/search/recursion/decide_steps.h"
#include "passes/search/recursion/decide_together.h"
#include "passes/search/recursion/dump.h"
#include "passes/search/recursion/joint_search.h"
#include "passes/search/recursion/memory_search.h"
#include "passes/search/recursion/reorder_steps.h"
#include "passes/search/recursion/sweep_pairs.h"
#include "passes/search/recursion/sweep_steps.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

constexpr int kMaxPartOrders = 6;  // orders of unequal parts to try
// Most cells to fill for a sweep's joint problem: a few milliseconds.
constexpr int64_t kSweptCells = int64_t{1} << 14;

// The solution of the plan to start from, counted anew: with these classes, operators may
// cost something else.
Solution StartOf(const PlanProblem& problem) {
  const Plan& start = *problem.options.start;
  Solution solution;
  solution.cuts = ClassCutsOf(problem.graph, problem.coarse, start);
  solution.cost = problem.model().PlanCost(solution.cuts);
  solution.has_optimal_steps = start.status != PlanStatus::kFeasible;
  return solution;
}

// Improves the plan that the options give.
Solution ImproveStart(const PlanProblem& problem) {
  Solution best = StartOf(problem);
  if (problem.options.memory != nullptr) return FitMemory(problem, std::move(best));
  if (problem.options.method != Method::kSweep) {
    return ImproveJointly(problem, std::move(best));
  }
  // One step is decided in one search, with a bound of all plans, if it is not too large.
  const bool is_one_step = problem.parts().size() < 2;
  best = ImproveJointly(problem, std::move(best),
                        is_one_step ? JointOptions().quick_cells : kSweptCells);
  return SweepSteps(problem, std::move(best));
}

// Finds a plan, and improves it if the method says so.
Solution FindAndImprove(const PlanProblem& problem) {
  const RecursiveOptions& options = problem.options;
  if (options.method == Method::kJoint || options.method == Method::kGreedy) {
    return DecideTogether(problem);
  }
  Solution best = DecideSteps(problem);
  if (options.method != Method::kImproved || options.parts.size() < 2) return best;
  const int64_t recursion_cost = best.cost;
  best = ImproveJointly(problem, std::move(best));
  best = ReorderSteps(problem, std::move(best));
  if (!options.is_quick) best = SweepPairs(problem, std::move(best));
  if (options.on_search) {
    options.on_search("improve",
                      DumpImprovement(recursion_cost, best.cost, best.lower_bound,
                                      problem.model().unit()));
  }
  return best;
}

// The plan of these parts in this order.
Plan SearchParts(const Graph& graph, const StrategyTable& table,
                 const CoarseGraph& coarse, const RecursiveOptions& options) {
  std::optional<PartitionSearcher> own_searcher;
  PartitionSearcher* searcher = options.searcher;
  if (searcher == nullptr) {
    searcher = &own_searcher.emplace(graph, table, coarse, options.parts,
                                     options.restrictions, options.objective);
  }
  const PlanProblem problem{graph, table, coarse, options, searcher};
  return ToPlan(problem, options.start != nullptr ? ImproveStart(problem)
                                                  : FindAndImprove(problem));
}

}  // namespace

Plan SearchRecursively(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const RecursiveOptions& options) {
  Plan best = SearchParts(graph, table, coarse, options);
  // An order is searched in full only if a quick search finds a cheaper plan with it.
  RecursiveOptions other = options;
  KnownProfiles known;
  other.known = options.known == nullptr ? nullptr : &known;
  other.on_search = nullptr;
  if (options.on_progress) {
    other.on_progress = [&](const SearchProgress&) {
      options.on_progress({"other orders of the parts", best.cost(), best.lower_bound()});
    };
  }
  for (const std::vector<int>& parts : OtherOrders(options)) {
    if (best.cost() == 0 || IsPast(options.deadline)) break;
    other.parts = parts;
    for (const bool is_quick : {true, false}) {
      other.is_quick = is_quick;
      Plan plan = SearchParts(graph, table, coarse, other);
      if (plan.cost() >= best.cost()) break;
      best = std::move(plan);
      if (options.known != nullptr) *options.known = known;
    }
  }
  return best;
}

std::vector<std::vector<int>> OtherOrders(const RecursiveOptions& options) {
  std::vector<std::vector<int>> orders;
  if (!options.may_reorder || options.method != Method::kImproved ||
      !IsNothingGiven(options.given)) {
    return orders;
  }
  std::vector<int> parts = options.parts;
  std::sort(parts.begin(), parts.end());
  for (int tried = 1; tried < kMaxPartOrders; ++tried) {
    if (parts != options.parts) orders.push_back(parts);
    if (!std::next_permutation(parts.begin(), parts.end())) break;
  }
  return orders;
}

std::vector<int> PrimeFactors(int workers) {
  std::vector<int> factors;
  for (int divisor = 2; divisor * divisor <= workers; ++divisor) {
    for (; workers % divisor == 0; workers /= divisor) factors.push_back(divisor);
  }
  if (workers > 1) factors.push_back(workers);
  std::reverse(factors.begin(), factors.end());
  return factors;
}

}  // namespace tofu
