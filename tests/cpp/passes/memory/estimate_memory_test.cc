#include "passes/memory/estimate_memory.h"

#include <gtest/gtest.h>

#include "graph/box.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// y = relu(x w), an output; 8 x 16 elements of 4 bytes a tensor, w 16 x 16.
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
  // While y is made: the tiles of x, of the output z, which stays, and of y.
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

}  // namespace
}  // namespace tofu
