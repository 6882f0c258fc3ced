#include "passes/search/tilings/batch_dimension.h"

#include <gtest/gtest.h>

#include "support/example_graphs.h"

namespace tofu {
namespace {

TEST(BatchDimension, FollowsTheDataThroughOperators) {
  ExampleGraph example;
  const NodeEntry data = example.Variable("data", {8, 6}, "data");
  const NodeEntry weight = example.Variable("weight", {6, 4}, "parameter");
  const NodeEntry y = example.MatMul("y", data, weight);
  const NodeEntry gradient = example.MatMul("gradient", data, y, true, false);
  const BatchDimensions batch = FindBatch(example.graph(), example.table());
  EXPECT_EQ(batch.tensors[data.node], 0);
  EXPECT_EQ(batch.tensors[weight.node], -1);
  EXPECT_EQ(batch.operators[y.node], 0);
  EXPECT_EQ(batch.tensors[y.node], 0);
  EXPECT_EQ(batch.operators[gradient.node], 2) << "the sum runs along the batch";
  EXPECT_EQ(batch.tensors[gradient.node], -1);
}

TEST(BatchDimension, IsTheColumnsWhereTheOutputIsTransposed) {
  ExampleGraph example;
  const NodeEntry weight = example.Variable("weight", {4, 6}, "parameter");
  const NodeEntry data = example.Variable("data", {8, 6}, "data");
  const NodeEntry y = example.MatMul("y", weight, data, false, true);
  const BatchDimensions batch = FindBatch(example.graph(), example.table());
  EXPECT_EQ(batch.operators[y.node], 1);
  EXPECT_EQ(batch.tensors[y.node], 1);
}

TEST(BatchDimension, HeadGradientsHaveItScalarsAndOtherVariablesDoNot) {
  ExampleGraph example;
  example.Variable("g", {8, 6}, "head_grad:0");
  example.Variable("scale", {}, "data");
  example.Variable("state", {8, 6}, "state:w");
  example.Variable("other", {8, 6});
  const BatchDimensions batch = FindBatch(example.graph(), example.table());
  EXPECT_EQ(batch.tensors, (std::vector<int>{0, -1, -1, -1}));
}

TEST(BatchDimension, UndescribedOperatorsAndUnsplittableVariablesEndIt) {
  ExampleGraph example;
  const NodeEntry data = example.Variable("data", {8, 6}, "data");
  const NodeEntry opaque = example.Opaque("opaque", {data}, {8, 6});
  const NodeEntry sum = example.SumRows("sum", data);
  StrategyTable table = example.table();
  EXPECT_EQ(FindBatch(example.graph(), table).tensors[opaque.node], -1);
  EXPECT_EQ(FindBatch(example.graph(), table).operators[sum.node], 0);
  table.rows[0].splittable = {1};
  EXPECT_EQ(FindBatch(example.graph(), table).operators[sum.node], -1);
}

// rows[8 * b + t] of data[b, t]: b leads the rows' index.
TEST(BatchDimension, IsLedByTheVariableWithTheLargestCoefficient) {
  ExampleGraph example;
  const NodeEntry data = example.Variable("data", {16, 6}, "data");
  const NodeEntry y = example.Elementwise("y", {data});
  StrategyTable table = example.table();
  StrategyRow& row = table.rows[0];
  row.vars.push_back({"t", IndexVar::Extent::kConstant, 0, 0, 8});
  row.inputs[0].dims[0].lo.terms = {{2, false, 1}, {0, false, 8}};
  EXPECT_EQ(FindBatch(example.graph(), table).operators[y.node], 0);
  row.inputs[0].dims[0].lo.terms = {{0, false, 1}, {2, false, 8}};
  row.splittable.push_back(2);
  EXPECT_EQ(FindBatch(example.graph(), table).operators[y.node], 2);
  row.inputs[0].dims[0].lo.terms = {{0, false, 8}, {2, false, 8}};
  EXPECT_EQ(FindBatch(example.graph(), table).operators[y.node], 0)
      << "the first of those with equal coefficients";
  row.inputs[0].dims[0].lo.divisor = 2;
  EXPECT_EQ(FindBatch(example.graph(), table).operators[y.node], -1);
}

// rows[8 * r + b] of data[r, b], where r has one value.
TEST(BatchDimension, IsNotLedByAVariableOfOneValue) {
  ExampleGraph example;
  const NodeEntry data = example.Variable("data", {8, 6}, "data");
  const NodeEntry y = example.Elementwise("y", {data});
  StrategyTable table = example.table();
  StrategyRow& row = table.rows[0];
  row.vars.push_back({"r", IndexVar::Extent::kConstant, 0, 0, 1});
  row.outputs[0].dims[0].lo.terms = {{2, false, 8}, {0, false, 1}};
  const BatchDimensions batch = FindBatch(example.graph(), table);
  EXPECT_EQ(batch.operators[y.node], 0);
  EXPECT_EQ(batch.tensors[y.node], 0);
}

}  // namespace
}  // namespace tofu
