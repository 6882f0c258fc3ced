#include "passes/schedule/join_phases.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "passes/memory/bound_graph.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/partition.h"
#include "passes/schedule/control_deps.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

// The nodes that the heads are outputs of.
std::vector<std::string> HeadNames(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeEntry head : graph.heads) names.push_back(graph.nodes[head.node].name);
  return names;
}

Phases Divide(const MockGraph& mock, const std::vector<int>& parts = {2},
              const PartitionOptions& options = {}) {
  return SplitPhases(
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, parts), options));
}

// y = x * w and z = y + y; gradient of w = x * y, of x = y * w.
MockGraph TwoPhases() {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry w = mock.Variable("w", {4});
  const NodeEntry y = mock.Elementwise("mul", {x, w});
  mock.Head(mock.Elementwise("add", {y, y}), "output");
  mock.Head(mock.Elementwise("mul", {x, y}), "gradient:w");
  mock.Head(mock.Elementwise("mul", {y, w}), "gradient:x");
  return mock;
}

int NumberOf(const Graph& graph, const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].name == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return 0;
}

TEST(Joint, ReadsVariablesAndWhatIsSavedOfTheForwardHalf) {
  const JointGraph joint = JoinPhases(Divide(TwoPhases()));
  EXPECT_EQ(
      Names(joint.graph),
      (std::vector<std::string>{"x@0", "w@0", "mul2@0", "add3@0", "x@1", "w@1", "mul2@1",
                                "add3@1", "mul4@0", "mul5@0", "mul4@1", "mul5@1"}));
  const auto& inputs = joint.graph.nodes[NumberOf(joint.graph, "mul5@1")].inputs;
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].node, NumberOf(joint.graph, "mul2@1"));
  EXPECT_EQ(inputs[1].node, NumberOf(joint.graph, "w@1"));
  EXPECT_EQ(joint.graph.num_entries(), 12);
  EXPECT_EQ(joint.graph.shape({11, 0}), (Shape{4}));
}

TEST(Joint, HasNoHeadsForWhatIsSavedAlone) {
  const Phases phases = Divide(TwoPhases());
  EXPECT_EQ(phases.forward.graph.heads.size(), 4u);
  const JointGraph joint = JoinPhases(phases);
  EXPECT_EQ(HeadNames(joint.graph),
            (std::vector<std::string>{"add3@0", "add3@1", "mul4@0", "mul4@1", "mul5@0",
                                      "mul5@1"}));
  ASSERT_EQ(joint.forward_heads.size(), 1u);
  EXPECT_EQ(joint.forward_heads[0].role, "output");
  EXPECT_EQ(joint.forward_heads[0].tiles[1].head, 1);
  ASSERT_EQ(joint.backward_heads.size(), 2u);
  EXPECT_EQ(joint.backward_heads[1].role, "gradient:x");
  EXPECT_EQ(joint.backward_heads[1].tiles[0].head, 4);
}

// Heads after one that is left out get other numbers.
TEST(Joint, KeepsAHeadThatIsSavedAndAnOutput) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry y = mock.Elementwise("mul", {x, x});
  const NodeEntry z = mock.Elementwise("add", {y, y});
  mock.Head(z, "output");
  mock.Head(mock.Elementwise("mul", {y, z}), "gradient:x");
  Phases phases = Divide(mock, {});
  ASSERT_EQ(phases.saved.size(), 2u);
  // Puts the head of y, which is only saved, first.
  std::swap(phases.forward.graph.heads[0], phases.forward.graph.heads[1]);
  phases.forward.heads[0].tiles[0].head = 1;
  for (SavedEntry& saved : phases.saved) saved.forward_head = 1 - saved.forward_head;
  const JointGraph joint = JoinPhases(phases);
  EXPECT_EQ(HeadNames(joint.graph), (std::vector<std::string>{"add2@0", "mul3@0"}));
  EXPECT_EQ(joint.forward_heads[0].tiles[0].head, 0);
  EXPECT_EQ(joint.backward_heads[0].tiles[0].head, 1);
}

TEST(Joint, GivesTheForwardHalfsEntryForAStateThatItComputes) {
  MockGraph mock;
  const NodeEntry mean = mock.Elementwise("mul", {mock.Variable("running_mean", {4})});
  mock.Head(mock.Elementwise("add", {mean}), "output");
  mock.Head(mean, "aux:running_mean");
  const JointGraph joint = JoinPhases(Divide(mock, {}));
  EXPECT_EQ(HeadNames(joint.graph), (std::vector<std::string>{"add2@0", "mul1@0"}));
  EXPECT_EQ(joint.backward_heads[0].tiles[0].head, 1);
}

// The second output of a node is saved.
TEST(Joint, ReadsTheOutputThatIsSaved) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 2});
  const NodeEntry mean = mock.Moments(x);
  const NodeEntry variance{mean.node, 1};
  mock.Head(mean, "output");
  mock.Head(mock.Elementwise("mul", {variance, variance}), "gradient:x");
  const JointGraph joint = JoinPhases(Divide(mock, {}));
  const Node& last = joint.graph.nodes.back();
  EXPECT_EQ(last.inputs[1].node, NumberOf(joint.graph, "moments1@0"));
  EXPECT_EQ(last.inputs[1].index, 1);
}

// Worker 1 reads what worker 0 computes, in both halves: MXNet copies it in each.
Phases CopiedInBoth() {
  Phases phases;
  phases.workers = 2;
  GraphBuilder forward;
  Node variable;
  variable.name = "x";
  const NodeEntry x{forward.Add(variable, 0, {{4}}, {0}), 0};
  const NodeEntry a = forward.Copy("a", 0, x);
  const NodeEntry b = forward.Copy("b", 1, a);
  const NodeEntry c = forward.Copy("c", 1, b);
  phases.forward.graph = std::move(forward.graph());
  phases.forward.graph.heads = {c, b};
  phases.forward.heads = {{"output", {4}, 0, {{0, 1, WholeBox({4})}}}};
  GraphBuilder backward;
  const NodeEntry again{backward.Add(variable, 0, {{4}}, {0}), 0};
  variable.name = "b/saved0";
  const NodeEntry saved{backward.Add(variable, 1, {{4}}, {0}), 0};
  const NodeEntry d = backward.Copy("d", 0, saved);
  const NodeEntry e = backward.Copy("e", 1, again);
  backward.graph().nodes[e.node].control_deps = {d.node, saved.node, again.node};
  PhaseGraph half;
  half.graph = std::move(backward.graph());
  half.graph.heads = {e};
  half.heads = {{"gradient:x", {4}, 0, {{0, 1, WholeBox({4})}}}};
  phases.backward = std::move(half);
  phases.saved = {{"b/saved0", 1, 1}};
  return phases;
}

TEST(Joint, MovesControlDependenciesToWhatTheyWereOn) {
  const JointGraph joint = JoinPhases(CopiedInBoth());
  const Graph& graph = joint.graph;
  EXPECT_EQ(graph.nodes[NumberOf(graph, "e")].control_deps,
            (std::vector<int>{NumberOf(graph, "d"), NumberOf(graph, "b"),
                              NumberOf(graph, "x")}));
}

TEST(Joint, NeedsABackwardHalf) {
  Phases phases = CopiedInBoth();
  phases.backward.reset();
  try {
    JoinPhases(phases);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("phases without a backward half"),
              std::string::npos)
        << error.what();
  }
}

// --- Random graphs ----------------------------------------------------------------

std::map<std::string, Array> TileValues(const Phases& phases,
                                        const std::map<std::string, Array>& whole) {
  std::map<std::string, Array> values;
  for (const PartitionedVariable& variable : phases.variables) {
    for (const VariableTile& tile : variable.tiles) {
      values.emplace(tile.name, Crop(whole.at(variable.name), tile.box));
    }
  }
  return values;
}

// Expects equal bits, because both run the same nodes.
void ExpectSameHeads(const PhaseGraph& phase, const std::vector<Array>& values,
                     const JointGraph& joint, const std::vector<Array>& joint_values,
                     const std::vector<PartitionedHead>& heads) {
  ASSERT_EQ(heads.size(), phase.heads.size());
  for (size_t h = 0; h < heads.size(); ++h) {
    EXPECT_EQ(heads[h].role, phase.heads[h].role);
    ASSERT_EQ(heads[h].tiles.size(), phase.heads[h].tiles.size());
    for (size_t t = 0; t < heads[h].tiles.size(); ++t) {
      const NodeEntry apart = phase.graph.heads[phase.heads[h].tiles[t].head];
      const NodeEntry together = joint.graph.heads[heads[h].tiles[t].head];
      EXPECT_EQ(values[phase.graph.entry_id(apart)].data,
                joint_values[joint.graph.entry_id(together)].data)
          << "head " << h << ", tile " << t;
    }
  }
}

// Expects that an executor that keeps the order runs the forward half's nodes first.
void ExpectForwardFirst(const Phases& phases, const JointGraph& joint) {
  std::vector<int> workers;
  for (const Node& node : joint.graph.nodes) {
    workers.push_back(node.group == WorkerGroup(0) ? 0 : 1);
    for (NodeEntry input : node.inputs) EXPECT_LT(input.node, workers.size() - 1);
  }
  Graph ordered = joint.graph;
  AddControlDeps(&ordered);
  workers.push_back(0);
  const BoundGraph bound = OrderAsBound(ordered, workers);
  int forward = 0;
  for (int node = 0; node < bound.graph.num_nodes(); ++node) {
    const int source = bound.sources[node];
    const bool is_forward = source >= 0 && source < phases.forward.graph.num_nodes();
    if (!is_forward) continue;
    EXPECT_EQ(source, forward++) << bound.graph.nodes[node].name;
  }
  EXPECT_EQ(forward, phases.forward.graph.num_nodes());
}

TEST(Joint, ComputesWhatThePhasesComputeOnRandomGraphs) {
  int joined = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    SCOPED_TRACE(DumpGraph(mock.graph));
    PartitionOptions options;
    options.fetch = seed % 2 == 0 ? FetchKind::kPlain : FetchKind::kMultiFetch;
    Phases phases = SplitPhases(
        PartitionGraph(mock.graph, mock.table, RandomPlan(mock, {2}, &random), options));
    if (!phases.backward) continue;
    ++joined;
    const JointGraph joint = JoinPhases(phases);
    ExpectForwardFirst(phases, joint);
    std::map<std::string, Array> values =
        TileValues(phases, RandomValues(mock.graph, &random));
    const std::vector<Array> together = RunGraph(joint.graph, values);
    const std::vector<Array> forward = RunGraph(phases.forward.graph, values);
    ExpectSameHeads(phases.forward, forward, joint, together, joint.forward_heads);
    for (const SavedEntry& saved : phases.saved) {
      const NodeEntry entry = phases.forward.graph.heads[saved.forward_head];
      values.emplace(saved.name, forward[phases.forward.graph.entry_id(entry)]);
    }
    const std::vector<Array> backward = RunGraph(phases.backward->graph, values);
    ExpectSameHeads(*phases.backward, backward, joint, together, joint.backward_heads);
    if (HasFailure()) return;  // the first failing case says enough
  }
  EXPECT_GT(joined, 30);
}

}  // namespace
}  // namespace tofu
