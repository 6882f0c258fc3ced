#include "graph/copied_workers.h"

#include <algorithm>
#include <vector>

#include "graph/strategy_table.h"

namespace tofu {
namespace {

using StepCuts = std::vector<std::vector<int>>;

bool DividesNothing(const StepCuts& cuts, size_t step) {
  return std::all_of(cuts.begin(), cuts.end(), [step](const std::vector<int>& steps) {
    return step >= steps.size() || steps[step] == kReplicated;
  });
}

bool HasDraws(const StrategyTable& table) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [](const StrategyRow& row) { return row.random; });
}

void DropFirst(size_t steps, StepCuts* cuts) {
  for (std::vector<int>& each : *cuts) {
    each.erase(each.begin(), each.begin() + std::min(steps, each.size()));
  }
}

}  // namespace

Plan WithoutCopiedWorkers(const StrategyTable& table, Plan plan) {
  if (!plan.routes.empty() || !plan.output_routes.empty() || HasDraws(table)) return plan;
  size_t copied = 0;
  while (copied < plan.parts.size() && DividesNothing(plan.tensor_cuts, copied) &&
         DividesNothing(plan.op_cuts, copied)) {
    ++copied;
  }
  plan.parts.erase(plan.parts.begin(), plan.parts.begin() + copied);
  plan.step_bytes.erase(
      plan.step_bytes.begin(),
      plan.step_bytes.begin() + std::min(copied, plan.step_bytes.size()));
  DropFirst(copied, &plan.tensor_cuts);
  DropFirst(copied, &plan.op_cuts);
  return plan;
}

}  // namespace tofu
