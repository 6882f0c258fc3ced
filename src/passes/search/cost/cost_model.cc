#include "passes/search/cost/cost_model.h"

#include "base/error.h"
#include "passes/search/cost/byte_cost_model.h"
#include "passes/search/cost/time_cost_model.h"

namespace tofu {

std::unique_ptr<const CostModel> MakeCostModel(const Objective& objective,
                                               const Graph& graph,
                                               const StrategyTable& table,
                                               const CoarseGraph& coarse,
                                               const std::vector<int>& parts) {
  const TimeModel* machine = objective.machine;
  std::string name = objective.name;
  if (name.empty()) name = machine == nullptr ? "bytes" : "time";
  if (name == "bytes") {
    return std::make_unique<ByteCostModel>(graph, table, coarse, parts);
  }
  TOFU_CHECK_USER(name == "time" && machine != nullptr, Blame::kPlan)
      << "plan: found the objective \"" << name << "\""
      << (machine == nullptr ? " without a machine" : "")
      << ", expected \"bytes\", or \"time\" with a machine";
  return std::make_unique<TimeCostModel>(graph, table, coarse, *machine, parts);
}

}  // namespace tofu
