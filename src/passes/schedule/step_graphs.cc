#include "passes/schedule/step_graphs.h"

#include <utility>

#include "base/json.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/phases.h"
#include "passes/schedule/relay_regions.h"

namespace tofu {

void ArrangePhases(Phases* phases, bool control_deps) {
  std::vector<Graph*> halves = {&phases->forward.graph};
  if (phases->backward) halves.push_back(&phases->backward->graph);
  for (Graph* half : halves) {
    RelayRegions(half);
    if (control_deps) AddControlDeps(half);
  }
}

StepGraphs MakeStepGraphs(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, FetchKind fetch, bool joint) {
  StepGraphs step;
  step.partitioned = PartitionGraph(graph, table, plan, {{}, fetch});
  AddControlDeps(&step.partitioned.graph, &step.partitioned.node_workers);
  Phases phases = SplitPhases(step.partitioned);
  step.partitioned.graph = Graph();
  ArrangePhases(&phases);
  if (joint && phases.backward) {
    step.graphs.push_back(JoinPhases(phases).graph);
    return step;
  }
  step.graphs.push_back(std::move(phases.forward.graph));
  if (phases.backward) step.graphs.push_back(std::move(phases.backward->graph));
  return step;
}

StepGraphs ReadStepGraphs(const std::string& partitioned_json,
                          const std::string& phases_json) {
  StepGraphs step;
  step.partitioned = ReadPartitioned(partitioned_json);
  step.partitioned.graph = Graph();
  const JsonDocument document =
      ParseJson(phases_json, Blame::kGraph, "phases", "partition the graph anew");
  const JsonCursor root(document);
  for (const char* part : {"joint", "forward", "backward"}) {
    const JsonCursor half = root.At(part);
    if (!half.IsNull() && half.Has("graph")) {
      step.graphs.push_back(ReadGraph(half.At("graph")));
    }
  }
  return step;
}

}  // namespace tofu
