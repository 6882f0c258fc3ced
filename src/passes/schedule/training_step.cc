#include "passes/schedule/training_step.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "graph/head_roles.h"
#include "graph/verify_graph.h"
#include "passes/memory/bound_graph.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/verify_tiles.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/split_draws.h"

namespace tofu {
namespace {

bool HasBackward(const Partitioned& partitioned) {
  return std::any_of(
      partitioned.heads.begin(), partitioned.heads.end(),
      [](const PartitionedHead& head) { return head.role != kOutputRole; });
}

void Verify(const Graph& graph, const TrainingStep& step,
            const std::vector<PartitionedHead>& heads, const char* after) {
  CheckInterrupt();
  if (!kVerifyGraphs || step.is_view) return;
  VerifyTiles(graph, step.variables, heads, step.workers, after);
}

void AddOne(std::vector<PartitionedHead>* heads) {
  for (PartitionedHead& head : *heads) {
    for (HeadTile& tile : head.tiles) ++tile.head;
  }
}

// Fixes the order of every graph. Each gets a head before the others.
void KeepOrder(TrainingStep* step) {
  for (Graph& graph : step->graphs) {
    CheckInterrupt();
    AddControlDeps(&graph);
  }
  AddOne(&step->forward_heads);
  AddOne(&step->backward_heads);
  for (SavedEntry& entry : step->saved) ++entry.forward_head;
}

// Counts the nodes of a joint graph as the executor numbers them. The forward half is a
// prefix: each of its nodes is needed by an output.
void CountNodes(TrainingStep* step) {
  const Graph& graph = step->graphs.back();
  const BoundOrder order = OrderOf(graph, NodeWorkers(graph, step->workers), graph.heads);
  step->nodes = order.size();
  for (const PartitionedHead& head : step->forward_heads) {
    for (const HeadTile& tile : head.tiles) {
      const int end = order.place(order.heads[tile.head]) + 1;
      step->forward_nodes = std::max(step->forward_nodes, end);
    }
  }
}

void MakeJoint(Draws draws, Phases phases, TrainingStep* step) {
  JointGraph joint = JoinPhases(std::move(phases));
  std::vector<PartitionedHead> heads = joint.forward_heads;
  heads.insert(heads.end(), joint.backward_heads.begin(), joint.backward_heads.end());
  Verify(joint.graph, *step, heads, "join_phases");
  step->is_joint = true;
  step->forward_heads = std::move(joint.forward_heads);
  step->backward_heads = std::move(joint.backward_heads);
  step->saved = std::move(draws.drawn);
  if (!step->saved.empty()) {
    Verify(draws.graph, *step, {}, "split_draws");
    step->graphs.push_back(std::move(draws.graph));
  }
  step->graphs.push_back(std::move(joint.graph));
}

void MakeHalves(Phases phases, TrainingStep* step) {
  step->forward_heads = std::move(phases.forward.heads);
  step->graphs.push_back(std::move(phases.forward.graph));
  step->saved = std::move(phases.saved);
  if (!phases.backward) return;
  step->backward_heads = std::move(phases.backward->heads);
  step->graphs.push_back(std::move(phases.backward->graph));
}

}  // namespace

TrainingStep ScheduleStep(Partitioned partitioned, bool joint,
                          const StepCallback& on_pass) {
  std::optional<Draws> draws;
  if (joint && HasBackward(partitioned)) draws = SplitDraws(&partitioned);
  TrainingStep step;
  step.is_view = partitioned.is_view;
  Phases phases = SplitPhases(std::move(partitioned));
  step.workers = phases.workers;
  step.variables = phases.variables;
  Verify(phases.forward.graph, step, phases.forward.heads, "phases");
  if (phases.backward) {
    Verify(phases.backward->graph, step, phases.backward->heads, "phases");
  }
  if (on_pass) {
    const bool draws_some = draws && !draws->drawn.empty();
    const std::string drawn =
        draws_some ? "draws\n" + DumpGraph(draws->graph) + "\n" : "";
    on_pass("phases", drawn + DumpPhases(phases));
  }
  if (draws) {
    MakeJoint(*std::move(draws), std::move(phases), &step);
  } else {
    MakeHalves(std::move(phases), &step);
  }
  KeepOrder(&step);
  if (step.is_joint) CountNodes(&step);
  return step;
}

}  // namespace tofu
