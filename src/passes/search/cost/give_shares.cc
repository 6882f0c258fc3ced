#include "passes/search/cost/give_shares.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "passes/search/cost/plan_bytes.h"
#include "passes/search/cost/predict.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

void CheckShares(const Plan& plan, const TileShares& shares) {
  TOFU_CHECK_USER(shares.multiple >= 1, Blame::kPlan)
      << "plan: found bounds of tiles on multiples of " << shares.multiple
      << ", expected 1 or more";
  TOFU_CHECK_USER(shares.of_steps.empty() || shares.of_steps.size() == plan.parts.size(),
                  Blame::kPlan)
      << "plan: found shares of " << shares.of_steps.size() << " steps, expected "
      << plan.parts.size() << ", or none";
  for (size_t step = 0; step < shares.of_steps.size(); ++step) {
    const std::vector<int>& of_step = shares.of_steps[step];
    if (of_step.empty()) continue;
    const int64_t sum = std::accumulate(of_step.begin(), of_step.end(), int64_t{0});
    bool are_positive = true;
    for (int share : of_step) are_positive = are_positive && share > 0;
    TOFU_CHECK_USER(of_step.size() == static_cast<size_t>(plan.parts[step]) &&
                        are_positive && sum <= kMostShares,
                    Blame::kPlan)
        << "plan: found " << of_step.size() << " shares with a sum of " << sum
        << " for step " << step + 1 << ", expected one above 0 for each of its "
        << plan.parts[step] << " parts, and at most " << kMostShares << " in all";
  }
}

}  // namespace

Plan GiveShares(const Graph& graph, const StrategyTable& table, Plan plan,
                TileShares shares, const TimeModel* model) {
  CheckShares(plan, shares);
  shares = Normal(std::move(shares));
  if (shares == plan.shares) return plan;
  plan.shares = std::move(shares);
  plan.status = PlanStatus::kFeasible;
  plan.lower_bound_bytes = 0;
  const CoarseGraph coarse = ClassesOf(graph, table, plan);
  SetPlanBytes(graph, table, coarse, ClassCutsOf(graph, coarse, plan), &plan);
  plan.predicted.reset();
  plan.routes.clear();
  plan.output_routes.clear();
  if (model != nullptr) {
    Prediction prediction = PredictTime(graph, table, plan, *model);
    prediction.time.lower_bound_ns = plan.objective ? 0 : -1;
    if (plan.objective) {
      plan.objective->cost = prediction.time.step_ns;
      plan.objective->lower_bound = 0;
    }
    plan.predicted = std::move(prediction.time);
    plan.routes = std::move(prediction.routes);
    plan.output_routes = std::move(prediction.output_routes);
  } else {
    plan.objective.reset();
  }
  return plan;
}

}  // namespace tofu
