#include "passes/partition/partition.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/error.h"
#include "passes/divide/operator_parts.h"
#include "passes/schedule/phases.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

const Node& Find(const Partitioned& partitioned, const std::string& name) {
  for (const Node& node : partitioned.graph.nodes) {
    if (node.name == name) return node;
  }
  throw std::runtime_error("no node " + name);
}

bool Has(const Partitioned& partitioned, const std::string& name) {
  for (const Node& node : partitioned.graph.nodes) {
    if (node.name == name) return true;
  }
  return false;
}

int64_t Fetched(const Partitioned& partitioned) {
  const auto& bytes = partitioned.fetched_bytes_per_worker;
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

template <typename Run>
std::string ErrorText(Blame blame, Run run) {
  try {
    run();
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), blame);
    return error.what();
  }
  return "no error";
}

void ExpectText(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Partition, AddsNoNodesWhereTilesFit) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 2});
  const NodeEntry y = mock.Elementwise("mul", {x, x});
  mock.Head(y, "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {0}};
  plan.op_cuts[y.node] = {0};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  EXPECT_EQ(DumpGraph(divided.graph),
            "x@0  variable  worker0  float64[2,2]\n"
            "mul1@0  mul  worker0  float64[2,2]  <- x@0, x@0\n"
            "x@1  variable  worker1  float64[2,2]\n"
            "mul1@1  mul  worker1  float64[2,2]  <- x@1, x@1\n"
            "head  mul1@0.0\n"
            "head  mul1@1.0\n");
  EXPECT_EQ(Fetched(divided), 0);
  EXPECT_EQ(divided.heads[0].tiles[1].box, (Box{{2, 0}, {4, 2}}));
}

TEST(Partition, DropsOnlyAttributesOfTofuAndShapesOfVariables) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  mock.graph.nodes[x.node].attrs["__shape__"] = "(4,)";
  const NodeEntry y = mock.Elementwise("add", {x});
  mock.graph.nodes[y.node].attrs["scalar"] = "3";
  mock.graph.nodes[y.node].group = "mine";
  mock.Head(y, "output");
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2}));
  EXPECT_EQ(Find(divided, "x@1").attrs, (Attrs{{"__lr_mult__", "2"}}));
  EXPECT_EQ(Find(divided, "x@1").group, "worker1");
  EXPECT_EQ(Find(divided, "add1@0").attrs, (Attrs{{"scalar", "3"}}));
  EXPECT_EQ(Find(divided, "add1@0").group, "worker0");
  EXPECT_EQ(divided.variables[0].role, "parameter");
}

class FullyConnectedPartition : public testing::Test {
 protected:
  FullyConnectedPartition() {
    const NodeEntry x = mock_.Variable("x", {4, 8});
    const NodeEntry w = mock_.Variable("w", {6, 8});
    y_ = mock_.FullyConnected(x, w, mock_.Variable("bias", {6}));
    mock_.Head(y_, "output");
  }

  Partitioned Divide(int var, const std::vector<std::vector<int>>& tensor_cuts) {
    Plan plan = ReplicatedPlan(mock_, {2});
    plan.op_cuts[y_.node] = {var};
    plan.tensor_cuts = tensor_cuts;
    return PartitionGraph(mock_.graph, mock_.table, plan);
  }

  MockGraph mock_;
  NodeEntry y_;
};

TEST_F(FullyConnectedPartition, AddsTheBiasOnceUnderASumAndSpreadsTheReduction) {
  const Partitioned divided = Divide(2, {{1}, {1}, {0}, {0}});
  const std::string name = "fully_connected3@";
  const auto op_of = [&](NodeEntry input) { return divided.graph.nodes[input.node].op; };
  EXPECT_EQ(op_of(Find(divided, name + "0").inputs[2]), "Concat");
  EXPECT_EQ(op_of(Find(divided, name + "1").inputs[2]), "_zeros");
  for (int w = 0; w < 2; ++w) {
    const std::string reduce = name + std::to_string(w) + "/out0/reduce";
    const Node& sum = Find(divided, reduce);
    EXPECT_EQ(sum.op, "add_n");
    // Every worker adds worker 0's term first.
    EXPECT_EQ(divided.node_workers[sum.inputs[0].node], 0);
    EXPECT_EQ(divided.node_workers[sum.inputs[1].node], 1);
  }
  // Half of the bias, and half of the output for each worker.
  EXPECT_EQ(divided.fetched_bytes_per_worker, (std::vector<int64_t>{24 + 96, 96}));
}

TEST_F(FullyConnectedPartition, WorkersFetchOneAfterTheOtherAndThenCompute) {
  Plan plan = ReplicatedPlan(mock_, {2});
  plan.op_cuts[y_.node] = {0};
  plan.tensor_cuts = {{1}, {1}, {0}, {0}};
  PartitionOptions options;
  options.fetch = FetchKind::kMultiFetch;
  options.bundle = false;
  const Partitioned divided = PartitionGraph(mock_.graph, mock_.table, plan, options);
  std::string order;
  for (const Node& node : divided.graph.nodes) {
    if (!node.is_variable()) order += node.name + " ";
  }
  const std::string name = "fully_connected3@";
  const auto fetch = [&](int worker, int input) {
    return name + std::to_string(worker) + "/in" + std::to_string(input) + "/fetch ";
  };
  EXPECT_EQ(order, fetch(0, 0) + fetch(0, 1) + fetch(0, 2) + fetch(1, 0) + fetch(1, 1) +
                       fetch(1, 2) + name + "0 " + name + "1 ");
}

TEST_F(FullyConnectedPartition, OperatorsShareTheZerosOfTheirBias) {
  const NodeEntry other =
      mock_.FullyConnected(mock_.Variable("x2", {4, 8}), mock_.Variable("w2", {6, 8}),
                           mock_.Variable("bias2", {6}));
  mock_.Head(other, "output");
  Plan plan = ReplicatedPlan(mock_, {2});
  plan.op_cuts[y_.node] = plan.op_cuts[other.node] = {2};
  const Partitioned divided = PartitionGraph(mock_.graph, mock_.table, plan);
  const auto zeros = [&](NodeEntry y) {
    return Find(divided, mock_.graph.nodes[y.node].name + "@1").inputs[2].node;
  };
  EXPECT_EQ(divided.graph.nodes[zeros(y_)].op, "_zeros");
  EXPECT_EQ(zeros(y_), zeros(other));
}

TEST_F(FullyConnectedPartition, RewritesSizesOnlyWhenTheirVariableIsSplit) {
  EXPECT_EQ(
      Find(Divide(1, {{0}, {0}, {0}, {1}}), "fully_connected3@1").attrs.at("num_hidden"),
      "3");
  EXPECT_EQ(
      Find(Divide(0, {{0}, {0}, {0}, {0}}), "fully_connected3@1").attrs.at("num_hidden"),
      "6");
}

TEST_F(FullyConnectedPartition, NamesOutputThatNoPartProduces) {
  mock_.table.rows.back().outputs[0].dims[0] = AtVar(0, 1, 1);
  const std::string text =
      ErrorText(Blame::kTable, [&] { Divide(0, {{0}, {0}, {0}, {0}}); });
  ExpectText(text, "fully_connected3/out0");
  ExpectText(text, "no part produces all of [0:1, 0:6)");
}

TEST_F(FullyConnectedPartition, GivesAnUnreadOutputTheShapeOfAnInputsPart) {
  mock_.table.rows.back().outputs[0].like = 0;
  mock_.graph.heads = {{0, 0}};
  mock_.graph.head_roles = {"output"};
  Plan plan = ReplicatedPlan(mock_, {2});
  plan.op_cuts[y_.node] = {2};
  const OperatorPart part = PartOf(mock_.graph, mock_.table, plan, y_.node, 1);
  EXPECT_EQ(part.inputs[0].box.Extents(), (Shape{4, 4}));
  EXPECT_EQ(part.outputs[0].Extents(), (Shape{4, 4}));
}

TEST_F(FullyConnectedPartition, RefusesToMixReductions) {
  mock_.table.rows.back().outputs[0].reduce[1] = Reducer::kMax;
  Plan plan = ReplicatedPlan(mock_, {2, 2});
  plan.op_cuts[y_.node] = {2, 1};
  ExpectText(
      ErrorText(Blame::kPlan, [&] { PartitionGraph(mock_.graph, mock_.table, plan); }),
      "reduced by different operations");
}

TEST(Partition, ComputesRandomNumbersOnceForWorkersThatShareThem) {
  MockGraph mock;
  const NodeEntry noise = mock.Elementwise("noise", {mock.Variable("x", {4})});
  mock.Head(noise, "output");
  Plan plan = ReplicatedPlan(mock, {2, 2});
  plan.op_cuts[noise.node] = {kReplicated, 0};
  plan.tensor_cuts = {{kReplicated, 0}, {kReplicated, 0}};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  EXPECT_TRUE(Has(divided, "noise1@0"));
  EXPECT_TRUE(Has(divided, "noise1@1"));
  EXPECT_FALSE(Has(divided, "noise1@2"));
  EXPECT_EQ(Find(divided, "noise1@2/out0/copy").op, "_copy");
  EXPECT_EQ(divided.fetched_bytes_per_worker, (std::vector<int64_t>{0, 0, 16, 16}));
}

TEST(Partition, ComputesUndescribedOperatorsWholeOnEveryWorker) {
  MockGraph mock;
  const NodeEntry y = mock.Undescribed(mock.Variable("x", {4}));
  mock.Head(y, "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {0}};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  EXPECT_EQ(Find(divided, "reverse1@0/in0/concat0_0").op, "Concat");
  EXPECT_EQ(Find(divided, "reverse1@1/out0/slice0").op, "slice");
  EXPECT_EQ(Fetched(divided), 2 * 2 * 8);
}

// The constant is cut by rows and read twice by columns.
TEST(Partition, MakesConstantsWhereTheyAreReadWithMultiFetch) {
  MockGraph mock;
  const NodeEntry ones = mock.Filled({4, 4}, "1");
  const NodeEntry x = mock.Variable("x", {4, 4});
  const NodeEntry y = mock.Elementwise("add", {ones, x});
  mock.Head(mock.Elementwise("mul", {y, ones}), "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {1}, {1}, {1}};
  plan.op_cuts = {{0}, {kReplicated}, {1}, {1}};
  PartitionOptions options{{}, FetchKind::kMultiFetch};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan, options);
  int constants = 0;
  for (const Node& node : divided.graph.nodes) {
    EXPECT_NE(node.op, "_tofu_multifetch") << node.name;
    if (node.name.find("/constant") == std::string::npos) continue;
    ++constants;
    EXPECT_EQ(node.attrs.at("shape"), "(4, 2)");
    EXPECT_EQ(node.attrs.at("value"), "1");
  }
  EXPECT_EQ(constants, 2) << "one for both readers of each worker";
  EXPECT_EQ(Fetched(divided), 0);
  EXPECT_EQ(divided.shared_bytes, 2 * 2 * 4 * 8);
  options.share = false;
  const Partitioned fetched = PartitionGraph(mock.graph, mock.table, plan, options);
  EXPECT_EQ(Fetched(fetched), 2 * 2 * 4 * 8);
}

// A shared large constant would take memory from its first reader to its last.
TEST(Partition, MakesALargeConstantForEachReader) {
  MockGraph mock;
  const NodeEntry ones = mock.Filled({64, 128}, "1");
  const NodeEntry x = mock.Variable("x", {64, 128});
  const NodeEntry y = mock.Elementwise("add", {ones, x});
  mock.Head(mock.Elementwise("mul", {y, ones}), "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {1}, {1}, {1}};
  plan.op_cuts = {{0}, {kReplicated}, {1}, {1}};
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
  int constants = 0;
  for (const Node& node : divided.graph.nodes) {
    if (node.name.find("/constant") != std::string::npos) ++constants;
  }
  EXPECT_EQ(constants, 4);
}

TEST(Partition, LaysAGradientAsItsVariable) {
  MockGraph mock;
  const NodeEntry w = mock.Variable("w", {4, 2});
  const NodeEntry gradient = mock.Elementwise("add", {w});
  mock.Head(gradient, "gradient:w");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {1}};
  plan.op_cuts[gradient.node] = {1};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  EXPECT_EQ(divided.heads[0].tiles[1].box, divided.variables[0].tiles[1].box);
  const NodeEntry head = divided.graph.heads[divided.heads[0].tiles[1].head];
  EXPECT_EQ(divided.graph.shape(head), (Shape{2, 2}));
  EXPECT_EQ(divided.node_workers[head.node], 1);
}

TEST(Partition, GeneratesWhatTheChosenHeadsNeed) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry unused = mock.Variable("unused", {2});
  const NodeEntry y = mock.Elementwise("add", {x});
  const NodeEntry step = mock.Elementwise("mul", {y, x});
  mock.Head(y, "output");
  mock.Head(step, "update:x");
  const Plan plan = ReplicatedPlan(mock, {2});
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  EXPECT_EQ(divided.heads.size(), 1u);
  EXPECT_FALSE(Has(divided, "mul3@0"));
  EXPECT_FALSE(Has(divided, "unused@0"));
  ASSERT_EQ(divided.variables.size(), 2u);
  EXPECT_EQ(divided.variables[1].tiles[0].name, "unused@0");
  EXPECT_EQ(mock.shape(unused), (Shape{2}));
  for (const char* role : {"update", "update:x"}) {
    PartitionOptions options;
    options.heads = {role};
    const Partitioned update = PartitionGraph(mock.graph, mock.table, plan, options);
    ASSERT_EQ(update.heads.size(), 1u);
    EXPECT_TRUE(Has(update, "mul3@1"));
  }
  PartitionOptions wrong;
  wrong.heads = {"gradient:z"};
  ExpectText(ErrorText(Blame::kGraph,
                       [&] { PartitionGraph(mock.graph, mock.table, plan, wrong); }),
             "no head of the graph has the role \"gradient:z\"");
}

TEST(Partition, TakesVariablesScalarsAndOneEntryTwiceAsHeads) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry scalar = mock.ReduceAxis("sum_axis", x, 0);
  for (int i = 0; i < 2; ++i) mock.Head(scalar, "output");
  mock.Head(x, "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.op_cuts[scalar.node] = {0};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  ASSERT_EQ(divided.heads.size(), 3u);
  EXPECT_EQ(divided.graph.heads.size(), 4u);
  EXPECT_EQ(divided.heads[1].tiles[1].head, divided.heads[0].tiles[1].head);
  const NodeEntry variable = divided.graph.heads[divided.heads[2].tiles[0].head];
  EXPECT_EQ(divided.graph.nodes[variable.node].name, "x@0");
  EXPECT_EQ(Fetched(divided), 2 * 8);
}

// Workers 1 and 2 compute sums of columns, which others fetch from each other, and the
// hidden output, which they need themselves: they write both.
TEST(Partition, KeepsTheOutputsOfAnInstanceTogether) {
  MockGraph mock;
  const NodeEntry moments = mock.Moments(mock.Variable("x", {4, 8}));
  mock.Head({moments.node, 0}, "output");
  mock.Head({moments.node, 2}, "output");
  Plan plan = ReplicatedPlan(mock, {2, 2});
  plan.op_cuts[moments.node] = {1, kReplicated};
  plan.tensor_cuts[mock.graph.entry_id({moments.node, 0})] = {kReplicated, 0};
  plan.tensor_cuts[mock.graph.entry_id({moments.node, 2})] = {1, kReplicated};
  const Partitioned divided = PartitionGraph(mock.graph, mock.table, plan);
  std::set<int> named;
  for (const PartitionedHead& head : divided.heads) {
    for (const HeadTile& tile : head.tiles) named.insert(tile.head);
  }
  std::vector<std::string> kept;
  for (size_t h = 0; h < divided.graph.heads.size(); ++h) {
    const NodeEntry entry = divided.graph.heads[h];
    if (named.count(static_cast<int>(h)) > 0) continue;
    kept.push_back(divided.graph.nodes[entry.node].name + "." +
                   std::to_string(entry.index));
  }
  EXPECT_EQ(kept, (std::vector<std::string>{"moments1@1.0", "moments1@2.0"}));
  const Phases phases = SplitPhases(divided);
  EXPECT_EQ(phases.forward.graph.heads.size(), divided.graph.heads.size());
}

TEST(Partition, HandlesEmptyTensors) {
  MockGraph mock;
  const NodeEntry y = mock.Elementwise("add", {mock.Variable("x", {0, 4})});
  mock.Head(y, "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {1}};
  plan.op_cuts[y.node] = {1};
  EXPECT_EQ(Fetched(PartitionGraph(mock.graph, mock.table, plan)), 0);
}

TEST(Partition, RefusesTwoVariablesOfOneName) {
  MockGraph mock;
  mock.Variable("x", {4});
  mock.Head(mock.Variable("x", {4}), "output");
  ExpectText(
      ErrorText(
          Blame::kGraph,
          [&] { PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {2})); }),
      "variable x: found two of this name");
}

TEST(Partition, GivesOperatorsOfOneNameDifferentNames) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry a = mock.Elementwise("add", {x});
  const NodeEntry b = mock.Elementwise("add", {a});
  mock.graph.nodes[a.node].name = mock.graph.nodes[b.node].name = "same";
  mock.Head(b, "output");
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, ReplicatedPlan(mock, {}));
  EXPECT_TRUE(Has(divided, "same@0"));
  EXPECT_TRUE(Has(divided, "same@0#2"));
}

}  // namespace
}  // namespace tofu
