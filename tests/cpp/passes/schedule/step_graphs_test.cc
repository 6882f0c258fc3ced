#include "passes/schedule/step_graphs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "passes/schedule/control_deps.h"
#include "passes/schedule/join_phases.h"
#include "passes/schedule/phases.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// y = x * w; gradient of w = x * y.
MockGraph TwoPhases() {
  MockGraph mock(0);
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry w = mock.Variable("w", {4});
  const NodeEntry y = mock.Elementwise("mul", {x, w});
  mock.Head(y, "output");
  mock.Head(mock.Elementwise("mul", {x, y}), "gradient:w");
  return mock;
}

std::vector<std::string> Texts(const StepGraphs& step) {
  std::vector<std::string> texts;
  for (const Graph& graph : step.graphs) texts.push_back(WriteGraph(graph));
  return texts;
}

TEST(StepGraphs, AreThoseThatPartitionAndPhasesWrite) {
  const MockGraph mock = TwoPhases();
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts[0] = {0};  // so that each worker fetches half of x
  Partitioned partitioned =
      PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
  AddControlDeps(&partitioned.graph, &partitioned.node_workers);
  Phases phases = SplitPhases(partitioned);
  ArrangePhases(&phases);
  for (const bool joint : {false, true}) {
    const std::string text =
        joint ? WriteJoint(phases, JoinPhases(phases)) : WritePhases(phases);
    const StepGraphs read = ReadStepGraphs(WritePartitioned(partitioned), text);
    const StepGraphs made =
        MakeStepGraphs(mock.graph, mock.table, plan, FetchKind::kMultiFetch, joint);
    EXPECT_EQ(made.graphs.size(), joint ? 1u : 2u);
    EXPECT_EQ(Texts(made), Texts(read));
    for (const std::string& graph : Texts(made)) {
      EXPECT_NE(graph.find("/relay"), std::string::npos);
    }
    // Variables are read in the order of their names.
    EXPECT_EQ(nlohmann::json(PartitionedJson(made.partitioned)),
              nlohmann::json(PartitionedJson(read.partitioned)));
    EXPECT_EQ(made.partitioned.heads.size(), 2u);
  }
}

TEST(StepGraphs, OfOutputsAloneAreOne) {
  MockGraph mock;
  mock.Head(mock.Elementwise("add", {mock.Variable("x", {4})}), "output");
  const Plan plan = ReplicatedPlan(mock, {2});
  for (const bool joint : {false, true}) {
    EXPECT_EQ(MakeStepGraphs(mock.graph, mock.table, plan, FetchKind::kPlain, joint)
                  .graphs.size(),
              1u);
  }
}

TEST(StepGraphs, SayWhichTextIsDamaged) {
  const MockGraph mock = TwoPhases();
  const std::string partitioned =
      WritePartitioned(PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2})));
  try {
    ReadStepGraphs(partitioned, R"({"joint": null})");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kGraph);
    EXPECT_NE(
        std::string(error.what())
            .find("phases: the document: found an object, expected the key \"forward\""),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tofu
