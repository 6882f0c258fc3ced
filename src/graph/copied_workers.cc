#include "graph/copied_workers.h"

#include <algorithm>
#include <cstddef>
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

template <typename Steps>
void DropFirst(size_t count, Steps* steps) {
  const size_t most = std::min(count, steps->size());
  steps->erase(steps->begin(), steps->begin() + static_cast<std::ptrdiff_t>(most));
}

void DropFirstOfEach(size_t count, StepCuts* cuts) {
  for (std::vector<int>& each : *cuts) DropFirst(count, &each);
}

}  // namespace

Plan WithoutCopiedWorkers(const StrategyTable& table, Plan plan) {
  if (!plan.routes.empty() || !plan.output_routes.empty() || HasDraws(table)) return plan;
  size_t copied = 0;
  while (copied < plan.parts.size() && DividesNothing(plan.tensor_cuts, copied) &&
         DividesNothing(plan.op_cuts, copied)) {
    ++copied;
  }
  DropFirst(copied, &plan.parts);
  DropFirst(copied, &plan.shares.of_steps);
  DropFirst(copied, &plan.step_bytes);
  DropFirstOfEach(copied, &plan.tensor_cuts);
  DropFirstOfEach(copied, &plan.op_cuts);
  return plan;
}

}  // namespace tofu
