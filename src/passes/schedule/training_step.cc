#include "passes/schedule/training_step.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "graph/head_roles.h"
#include "graph/verify_graph.h"
#include "passes/partition/verify_tiles.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/drop_acknowledgements.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/order_heads.h"
#include "passes/schedule/order_nodes.h"
#include "passes/schedule/relay_regions.h"
#include "passes/schedule/split_draws.h"

namespace tofu {
namespace {

// The partitioned graph in the order in which workers should run it.
Partitioned InOrder(Partitioned partitioned) {
  std::vector<int> workers;
  for (int number : OrderNodes(&partitioned.graph)) {
    workers.push_back(partitioned.node_workers[number]);
  }
  partitioned.node_workers = std::move(workers);
  return partitioned;
}

bool HasBackward(const Partitioned& partitioned) {
  return std::any_of(
      partitioned.heads.begin(), partitioned.heads.end(),
      [](const PartitionedHead& head) { return head.role != kOutputRole; });
}

void Verify(const PhaseGraph& phase, const Phases& phases, const char* after) {
  CheckInterrupt();
  if (!kVerifyGraphs) return;
  VerifyTiles(phase.graph, phases.variables, phase.heads, phases.workers, after);
}

void Arrange(const Phases& phases, const StepOptions& options, PhaseGraph* phase) {
  if (options.relays) {
    RelayRegions(&phase->graph);
    Verify(*phase, phases, "relay_regions");
  }
  if (!options.control_deps) return;
  OrderExchange(&phase->graph);
  AddControlDeps(&phase->graph);
  Verify(*phase, phases, "control_deps");
}

// The graph that draws, ready to run; empty if nothing is drawn.
std::vector<Graph> Arranged(Draws draws, const StepOptions& options,
                            const Phases& phases) {
  if (draws.drawn.empty()) return {};
  PhaseGraph phase{std::move(draws.graph), {}};
  Verify(phase, phases, "split_draws");
  Arrange(phases, options, &phase);
  return {std::move(phase.graph)};
}

void VerifyPhases(const Phases& phases, const char* after) {
  Verify(phases.forward, phases, after);
  if (phases.backward) Verify(*phases.backward, phases, after);
}

JointGraph Joined(Phases phases, const std::vector<PartitionedVariable>& variables) {
  const int workers = phases.workers;
  JointGraph joint = JoinPhases(std::move(phases));
  if (kVerifyGraphs) {
    std::vector<PartitionedHead> heads = joint.forward_heads;
    heads.insert(heads.end(), joint.backward_heads.begin(), joint.backward_heads.end());
    VerifyTiles(joint.graph, variables, heads, workers, "join_phases");
  }
  return joint;
}

}  // namespace

TrainingStep ScheduleStep(Partitioned partitioned, const StepOptions& options,
                          const StepCallback& on_pass) {
  Partitioned ordered = std::move(partitioned);
  if (options.control_deps) ordered = InOrder(std::move(ordered));
  std::optional<Draws> draws;
  if (options.joint && HasBackward(ordered)) draws = SplitDraws(&ordered);
  Phases phases = SplitPhases(std::move(ordered));
  VerifyPhases(phases, "phases");
  DropAcknowledgements(&phases);
  VerifyPhases(phases, "drop_acknowledgements");
  Arrange(phases, options, &phases.forward);
  if (phases.backward) {
    Arrange(phases, options, &*phases.backward);
    if (options.control_deps) OrderHeads(draws.has_value(), &phases);
    VerifyPhases(phases, "order_heads");
  }
  TrainingStep step;
  if (draws) {
    step.saved = draws->drawn;
    step.graphs = Arranged(std::move(*draws), options, phases);
  }
  if (on_pass) {
    const std::string drawn =
        step.graphs.empty() ? "" : "draws\n" + DumpGraph(step.graphs[0]) + "\n";
    on_pass("phases", drawn + DumpPhases(phases));
  }

  step.workers = phases.workers;
  step.variables = phases.variables;
  if (draws) {
    JointGraph joint = Joined(std::move(phases), step.variables);
    step.is_joint = true;
    step.forward_nodes = joint.forward_nodes;
    step.nodes = joint.nodes;
    step.forward_heads = std::move(joint.forward_heads);
    step.backward_heads = std::move(joint.backward_heads);
    step.graphs.push_back(std::move(joint.graph));
  } else {
    step.forward_heads = std::move(phases.forward.heads);
    step.graphs.push_back(std::move(phases.forward.graph));
    step.saved = std::move(phases.saved);
    if (phases.backward) {
      step.backward_heads = std::move(phases.backward->heads);
      step.graphs.push_back(std::move(phases.backward->graph));
    }
  }
  return step;
}

}  // namespace tofu
