#include "passes/search/cost/predict.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "passes/search/cost/slot_bytes.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

void AddFetches(const CoarseGraph& coarse, const ClassCuts& cuts, const OpClass& op,
                const TimedSplit& split, const TimeCost& time, Prediction* prediction) {
  const int64_t count = static_cast<int64_t>(op.nodes.size());
  for (const OpSlot& slot : op.slots) {
    const GroupTiles tiles = time.Tiles(coarse.tensors[slot.tensor_class].shape,
                                        cuts.tensors[slot.tensor_class]);
    const FetchTime fetch = time.Fetch(op.nodes[0], slot, split, tiles);
    prediction->time.fetch_ns += count * Nanoseconds(fetch.seconds);
    prediction->time.hidden_ns += count * Nanoseconds(fetch.hidden_s);
    prediction->time.host_ns += count * Nanoseconds(fetch.host_s);
    prediction->time.step_ns += count * Nanoseconds(fetch.Counted());
    prediction->time.relayed_bytes += count * fetch.relayed_bytes;
    for (int node : op.nodes) {
      if (!fetch.HasRoute()) break;
      if (slot.is_output) {
        prediction->output_routes.push_back(
            {node, slot.index, fetch.partial, fetch.stops});
      } else {
        prediction->routes.push_back({node, slot.index, fetch.stops});
      }
    }
    for (size_t step = 0; step < fetch.bytes_by_step.size(); ++step) {
      prediction->time.links[time.LevelOf(step)].bytes +=
          count * fetch.bytes_by_step[step];
    }
  }
}

// Adds the times of an element-wise class. Its operators differ, and fetch nothing unless
// they are random, or update weights that are cut apart.
void AddElementwise(const StrategyTable& table, const CoarseGraph& coarse,
                    const ClassCuts& cuts, const OpClass& op, const TimeCost& time,
                    Prediction* prediction) {
  const Cuts& of_tensor = cuts.tensors[op.follows];
  for (int node : op.nodes) {
    const double seconds = time.ElementwiseSeconds(node, of_tensor);
    prediction->time.compute_ns += Nanoseconds(seconds);
    prediction->time.host_ns += Nanoseconds(time.host_s());
    prediction->time.step_ns += Nanoseconds(seconds + time.host_s());
  }
  const StrategyRow& row = *table.row(op.nodes[0]);
  if (!row.random && !op.HasOtherTensors()) return;
  const TimedSplit split = time.Split(op.nodes[0], ElementwiseCuts(row, of_tensor));
  AddFetches(coarse, cuts, op, split, time, prediction);
}

void AddClass(const StrategyTable& table, const CoarseGraph& coarse,
              const ClassCuts& cuts, size_t number, const TimeCost& time,
              Prediction* prediction) {
  const OpClass& op = coarse.operators[number];
  if (op.elementwise) {
    AddElementwise(table, coarse, cuts, op, time, prediction);
    return;
  }
  const TimedSplit split = time.Split(op.nodes[0], cuts.operators[number]);
  const int64_t count = static_cast<int64_t>(op.nodes.size());
  prediction->time.compute_ns += count * Nanoseconds(split.compute_s);
  prediction->time.host_ns += count * Nanoseconds(time.host_s());
  prediction->time.step_ns += count * Nanoseconds(split.compute_s + time.host_s());
  AddFetches(coarse, cuts, op, split, time, prediction);
}

Prediction Nothing(const TimeCost& time) {
  Prediction prediction;
  prediction.time.machine = time.machine().name;
  for (const LinkLevel& link : time.machine().links) {
    prediction.time.links.push_back({link.name, 0});
  }
  return prediction;
}

}  // namespace

Prediction PredictTime(const Graph& graph, const StrategyTable& table, const Plan& plan,
                       const TimeModel& model) {
  const CoarseGraph coarse = ClassesOf(graph, table, plan);
  return PredictClasses(graph, table, coarse, ClassCutsOf(graph, coarse, plan),
                        plan.parts, model, plan.shares);
}

Prediction PredictClasses(const Graph& graph, const StrategyTable& table,
                          const CoarseGraph& coarse, const ClassCuts& cuts,
                          const std::vector<int>& parts, const TimeModel& model,
                          const TileShares& shares) {
  const TimeCost time(graph, table, model, parts, shares);
  Prediction prediction = Nothing(time);
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    AddClass(table, coarse, cuts, p, time, &prediction);
  }
  std::sort(prediction.routes.begin(), prediction.routes.end(),
            [](const Route& a, const Route& b) {
              return std::tuple(a.node, a.input) < std::tuple(b.node, b.input);
            });
  std::sort(prediction.output_routes.begin(), prediction.output_routes.end(),
            [](const OutputRoute& a, const OutputRoute& b) {
              return std::tuple(a.node, a.output) < std::tuple(b.node, b.output);
            });
  return prediction;
}

int64_t PredictOperators(const StrategyTable& table, const CoarseGraph& coarse,
                         const ClassCuts& cuts, size_t number, const TimeCost& time) {
  Prediction prediction = Nothing(time);
  AddClass(table, coarse, cuts, number, time, &prediction);
  return prediction.time.step_ns;
}

}  // namespace tofu
