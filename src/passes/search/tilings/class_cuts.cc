#include "passes/search/tilings/class_cuts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "graph/box.h"
#include "passes/coarsen/group.h"

namespace tofu {
namespace {

bool HasTerms(const Plan& plan) {
  return std::any_of(plan.tensor_cuts.begin(), plan.tensor_cuts.end(),
                     [](const std::vector<int>& cuts) {
                       return std::find(cuts.begin(), cuts.end(), kTerms) != cuts.end();
                     });
}

// Element-wise operators are cut like their tensors; those without slots do not run.
bool CutsMatter(const OpClass& op) { return !op.elementwise && !op.slots.empty(); }

void CheckAlike(const Graph& graph, int first, int node, const Cuts& a, const Cuts& b) {
  TOFU_CHECK_USER(a == b, Blame::kPlan)
      << "plan: found different cuts of \"" << graph.nodes[first].name << "\" and \""
      << graph.nodes[node].name << "\", expected equal ones, because the graph ties them "
      << "together; make the plan again from this graph";
}

}  // namespace

bool CutsAlike(const CoarseGraph& coarse, const Plan& plan) {
  for (const TensorClass& tensor : coarse.tensors) {
    const auto& first = plan.tensor_cuts[tensor.entries[0]];
    for (int entry : tensor.entries) {
      if (plan.tensor_cuts[entry] != first) return false;
    }
  }
  for (const OpClass& op : coarse.operators) {
    if (!CutsMatter(op)) continue;
    for (int node : op.nodes) {
      if (plan.op_cuts[node] != plan.op_cuts[op.nodes[0]]) return false;
    }
  }
  return true;
}

CoarseGraph ClassesOf(const Graph& graph, const StrategyTable& table, const Plan& plan) {
  const Groups groups = GroupForwardBackward(graph, table);
  const std::vector<SumsWait> waits =
      HasTerms(plan) ? std::vector{SumsWait::kInGradients, SumsWait::kAnywhere}
                     : std::vector{SumsWait::kNever};
  for (const bool merge_timesteps : {true, false}) {
    for (const bool merge_elementwise : {true, false}) {
      if (merge_timesteps && !merge_elementwise) continue;
      for (const UpdateTies updates :
           {UpdateTies::kAll, UpdateTies::kGradient, UpdateTies::kNone}) {
        for (const SumsWait sums_wait : waits) {
          CoarseGraph coarse =
              Coalesce(graph, table, groups,
                       {merge_elementwise, merge_timesteps, {}, updates, sums_wait});
          if (CutsAlike(coarse, plan)) return coarse;
        }
      }
    }
  }
  return Coalesce(graph, table, groups);
}

ClassCuts ClassCutsOf(const Graph& graph, const CoarseGraph& coarse, const Plan& plan) {
  ClassCuts cuts;
  for (const TensorClass& tensor : coarse.tensors) {
    cuts.tensors.emplace_back(plan.tensor_cuts[tensor.entries[0]]);
  }
  std::vector<int> first(coarse.tensors.size(), -1);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      const int entry = graph.entry_id({node, i});
      const int tensor = coarse.tensor_class[entry];
      if (first[tensor] < 0) first[tensor] = node;
      CheckAlike(graph, first[tensor], node, cuts.tensors[tensor],
                 plan.tensor_cuts[entry]);
    }
  }
  for (const OpClass& op : coarse.operators) {
    cuts.operators.emplace_back(plan.op_cuts[op.nodes[0]]);
    if (!CutsMatter(op)) continue;
    for (int node : op.nodes) {
      CheckAlike(graph, op.nodes[0], node, cuts.operators.back(), plan.op_cuts[node]);
    }
  }
  return cuts;
}

}  // namespace tofu
