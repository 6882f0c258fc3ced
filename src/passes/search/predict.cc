#include "passes/search/predict.h"

#include <vector>

#include "passes/search/class_cuts.h"
#include "passes/search/search_tables.h"

namespace tofu {
namespace {

void AddFetches(const CoarseGraph& coarse, const ClassCuts& cuts, const OpClass& op,
                const TimedSplit& split, const TimeCost& time, PredictedTime* found) {
  const int64_t count = static_cast<int64_t>(op.nodes.size());
  for (const OpSlot& slot : op.slots) {
    const GroupTiles tiles = time.Tiles(coarse.tensors[slot.tensor_class].shape,
                                        cuts.tensors[slot.tensor_class]);
    const FetchTime fetch = time.Fetch(op.nodes[0], slot, split, tiles);
    found->fetch_ns += count * Nanoseconds(fetch.seconds);
    found->hidden_ns += count * Nanoseconds(fetch.hidden_s);
    found->host_ns += count * Nanoseconds(fetch.host_s);
    found->step_ns += count * Nanoseconds(fetch.Counted());
    for (size_t step = 0; step < fetch.bytes_by_step.size(); ++step) {
      found->links[time.LevelOf(step)].bytes += count * fetch.bytes_by_step[step];
    }
  }
}

// Operators of an element-wise class differ, and fetch nothing unless they are random.
void AddElementwise(const Graph& graph, const StrategyTable& table,
                    const CoarseGraph& coarse, const ClassCuts& cuts, const OpClass& op,
                    const TimeCost& time, PredictedTime* found) {
  const Cuts& of_tensor = cuts.tensors[ElementwiseTensor(graph, coarse, op)];
  for (int node : op.nodes) {
    const double seconds = time.ElementwiseSeconds(node, of_tensor);
    found->compute_ns += Nanoseconds(seconds);
    found->host_ns += Nanoseconds(time.host_s());
    found->step_ns += Nanoseconds(seconds + time.host_s());
  }
  const StrategyRow& row = *table.row(op.nodes[0]);
  if (!row.random) return;
  const TimedSplit split = time.Split(op.nodes[0], ElementwiseCuts(row, of_tensor));
  AddFetches(coarse, cuts, op, split, time, found);
}

}  // namespace

PredictedTime PredictTime(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, const TimeModel& model) {
  const CoarseGraph coarse = ClassesOf(graph, table, plan);
  return PredictClasses(graph, table, coarse, ClassCutsOf(graph, coarse, plan),
                        plan.parts, model);
}

PredictedTime PredictClasses(const Graph& graph, const StrategyTable& table,
                             const CoarseGraph& coarse, const ClassCuts& cuts,
                             const std::vector<int>& parts, const TimeModel& model) {
  const TimeCost time(graph, table, coarse, model, parts);
  PredictedTime found;
  found.machine = model.machine.name;
  for (const LinkLevel& link : model.machine.links) found.links.push_back({link.name, 0});
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    const OpClass& op = coarse.operators[p];
    if (op.elementwise) {
      AddElementwise(graph, table, coarse, cuts, op, time, &found);
      continue;
    }
    const TimedSplit split = time.Split(op.nodes[0], cuts.operators[p]);
    const int64_t count = static_cast<int64_t>(op.nodes.size());
    found.compute_ns += count * Nanoseconds(split.compute_s);
    found.host_ns += count * Nanoseconds(time.host_s());
    found.step_ns += count * Nanoseconds(split.compute_s + time.host_s());
    AddFetches(coarse, cuts, op, split, time, &found);
  }
  return found;
}

}  // namespace tofu
