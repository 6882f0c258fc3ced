#include "passes/memory/estimate_memory.h"

#include <gtest/gtest.h>

#include "graph/box.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// y = relu(x w), an output. Tensors have 8 x 16 elements of 4 bytes, w has 16 x 16.
ExampleGraph Layer() {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 16}, "data");
  const NodeEntry w = example.Variable("w", {16, 16}, "parameter");
  const NodeEntry y = example.MatMul("y", x, w);
  example.Head(example.Elementwise("z", {y}), "output");
  return example;
}

Plan PlanOf(ExampleGraph* example, const std::vector<int>& cut_of_y,
            const std::vector<int>& split) {
  Plan plan;
  plan.parts = {2};
  plan.tensor_cuts = {{0}, {0}, cut_of_y, cut_of_y};
  plan.op_cuts.assign(4, {kReplicated});
  plan.op_cuts[2] = split;
  plan.op_cuts[3] = cut_of_y;
  plan.step_bytes = {0};
  plan.node_bytes.assign(example->graph().nodes.size(), 0);
  return plan;
}

TEST(PlanMemory, CountsTilesBuffersAndWhatIsAlive) {
  ExampleGraph example = Layer();
  const Plan plan = PlanOf(&example, {0}, {0});
  const WorkerBytes memory = EstimateMemory(example.graph(), example.table(), plan);
  EXPECT_EQ(memory.parameters, 16 * 16 * 4 / 2);
  EXPECT_EQ(memory.gradients, 0);
  EXPECT_EQ(memory.optimizer_state, 0);
  // While y is computed: the tiles of x, of y, and of the output z, which stays.
  EXPECT_EQ(memory.activations, 3 * 8 * 16 * 4 / 2);
  EXPECT_EQ(memory.fetch_buffers, 16 * 16 * 4) << "the whole of w";
  EXPECT_EQ(memory.total(), 512 + 768 + 1024);
}

TEST(PlanMemory, AnOutputThatIsProducedOtherwiseTakesABuffer) {
  ExampleGraph example = Layer();
  const Plan by_rows = PlanOf(&example, {0}, {0});
  const Plan by_columns = PlanOf(&example, {1}, {0});
  EXPECT_EQ(EstimateMemory(example.graph(), example.table(), by_columns).fetch_buffers,
            EstimateMemory(example.graph(), example.table(), by_rows).fetch_buffers +
                8 * 16 * 4 / 2);
}

TEST(PlanMemory, GradientsAndParametersAreTheTilesOfAPlan) {
  ExampleGraph example = Mlp(64, 32, 3);
  PlanOptions options;
  options.workers = 1;
  const WorkerBytes serial =
      EstimateMemory(example.graph(), example.table(),
                     MakePlan(example.graph(), example.table(), options));
  EXPECT_EQ(serial.parameters, 3 * (32 * 32 + 32) * 4);
  EXPECT_EQ(serial.gradients, serial.parameters);
  EXPECT_EQ(serial.fetch_buffers, 0);
  options.workers = 4;
  const WorkerBytes tiled =
      EstimateMemory(example.graph(), example.table(),
                     MakePlan(example.graph(), example.table(), options));
  EXPECT_EQ(tiled.parameters * 4, serial.parameters);
  EXPECT_EQ(tiled.gradients * 4, serial.gradients);
  EXPECT_LT(tiled.total(), serial.total());
}

// Under a plan of one worker everything is whole and nothing is fetched.
WorkerBytes Serial(ExampleGraph example) {
  PlanOptions options;
  options.workers = 1;
  return EstimateMemory(example.graph(), example.table(),
                        MakePlan(example.graph(), example.table(), options));
}

constexpr int64_t kTensor = 4 * 6 * 4;  // bytes of a 4 x 6 tensor of float32

TEST(PlanMemory, TellsWhatStaysApart) {
  ExampleGraph example;
  const NodeEntry w = example.Variable("w", {4, 6}, "parameter");
  const NodeEntry mean = example.Variable("mean", {6}, "aux");
  const NodeEntry momentum = example.Variable("momentum", {4, 6}, "state:w");
  const NodeEntry gradient = example.Elementwise("gradient", {w});
  example.Head(gradient, "gradient:w");
  example.Head(example.Elementwise("new_w", {w, gradient, momentum}, "sgd"), "update:w");
  example.Head(example.Elementwise("new_mean", {mean}), "aux:mean");
  const WorkerBytes memory = Serial(example);
  EXPECT_EQ(memory.parameters, kTensor + 6 * 4);
  EXPECT_EQ(memory.gradients, kTensor);
  EXPECT_EQ(memory.optimizer_state, kTensor);
  EXPECT_EQ(memory.activations, 0) << "new values are written in place";
}

TEST(PlanMemory, CountsTheBytesOfEachDtype) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  example.SetDtype(1);
  example.Head(example.Elementwise("y", {x}), "output");
  EXPECT_EQ(Serial(example).activations, kTensor + 2 * kTensor);
}

// x -> a -> b -> c, all element-wise: b reuses the memory of a. The data x and the output
// c stay.
TEST(PlanMemory, AnElementwiseOperatorWritesOverWhatItReadsLast) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry a = example.RowWise("a", {x});
  const NodeEntry b = example.Elementwise("b", {a});
  example.Head(example.RowWise("c", {b}), "output");
  EXPECT_EQ(Serial(example).activations, 3 * kTensor);
}

TEST(PlanMemory, AnOperatorDoesNotWriteOverAnInputOfAnotherSize) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry a = example.RowWise("a", {x});
  example.SetDtype(1);
  const NodeEntry b = example.Elementwise("b", {a}, "cast");
  example.SetDtype(0);
  example.Head(example.RowWise("c", {b}), "output");
  // x and c stay; a, and b with twice its bytes, are alive at the same time.
  EXPECT_EQ(Serial(example).activations, 2 * kTensor + 3 * kTensor);
}

TEST(PlanMemory, WhatIsReadLaterIsNotWrittenOver) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry a = example.RowWise("a", {x});
  const NodeEntry b = example.Elementwise("b", {a});
  example.Head(example.RowWise("c", {b, a}), "output");
  EXPECT_EQ(Serial(example).activations, 4 * kTensor);
}

// The second half is not read, so it is alive only while the operator runs.
TEST(PlanMemory, AnUnreadOutputDiesWithItsOperator) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6}, "data");
  const NodeEntry half = example.Split("split", x, 2)[0];
  const NodeEntry a = example.RowWise("a", {half});
  example.Head(example.MatMul("y", a, example.Variable("w", {3, 6})), "output");
  // x, w and y stay; at first both halves, then one half and a.
  EXPECT_EQ(Serial(example).activations, 2 * kTensor + 3 * 6 * 4 + kTensor);
}

TEST(PlanMemory, ATileThatIsCutAtTwoStepsIsAQuarter) {
  ExampleGraph example;
  const NodeEntry w = example.Variable("w", {4, 6}, "parameter");
  example.Head(example.Elementwise("y", {w}), "gradient:w");
  Plan plan;
  plan.parts = {2, 3, 2};
  plan.tensor_cuts = {{0, 1, kReplicated}, {0, 1, 0}};
  plan.op_cuts = {{kReplicated, kReplicated, kReplicated}, {0, 1, 0}};
  const WorkerBytes memory = EstimateMemory(example.graph(), example.table(), plan);
  EXPECT_EQ(memory.parameters, kTensor / 6);
  EXPECT_EQ(memory.gradients, kTensor / 12);
}

// The 16 columns are cut into four pieces; an inner one reads a column of each neighbour.
TEST(PlanMemory, AWorkerInsideTheGridReadsMoreThanThoseAtItsEdges) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {2, 16}, "data");
  example.Head(example.Window("y", x, 3, 1, 1), "output");
  Plan plan;
  plan.parts = {4};
  plan.tensor_cuts = {{1}, {1}};
  plan.op_cuts = {{kReplicated}, {1}};
  EXPECT_EQ(EstimateMemory(example.graph(), example.table(), plan).fetch_buffers,
            2 * 6 * 4);
}

}  // namespace
}  // namespace tofu
