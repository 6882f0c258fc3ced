#include "passes/search/tilings/basic_tilings.h"

#include <gtest/gtest.h>

#include "support/example_graphs.h"

namespace tofu {
namespace {

using Vars = std::vector<int>;

DimAccess At(int var) {
  return {false, {{{var, false, 1}}, 0, 1}, {{{var, true, 1}}, 0, 1}};
}

DimAccess Window(int position, int offset) {
  return {false,
          {{{position, false, 2}, {offset, false, 1}}, 0, 1},
          {{{position, true, 2}, {offset, true, 1}}, 0, 1}};
}

// out[b, c, y] = sum over i, k of data[b, i, 2 y + k] * weight[c, i, k].
StrategyRow Convolution() {
  enum { kBatch, kChannel, kPixel, kInput, kTap };
  StrategyRow row;
  row.vars.resize(5);
  row.splittable = {kBatch, kChannel, kPixel, kInput, kTap};
  row.inputs = {{{At(kBatch), At(kInput), Window(kPixel, kTap)}, {}, {}},
                {{At(kChannel), At(kInput), At(kTap)}, {}, {}}};
  row.outputs = {{{At(kBatch), At(kChannel), At(kPixel)},
                  {{kInput, Reducer::kSum}, {kTap, Reducer::kSum}}}};
  return row;
}

TEST(BasicTilings, AreTheBatchAndTheChannelsOfAConvolution) {
  EXPECT_EQ(BasicTilings(Convolution()), (Vars{0, 1, 3}));
}

TEST(BasicTilings, AreAllOfAProductOfMatrices) {
  ExampleGraph example;
  const NodeEntry a = example.Variable("a", {4, 6});
  const NodeEntry b = example.Variable("b", {8, 6});
  const NodeEntry y = example.MatMul("y", a, b, false, true);
  EXPECT_EQ(BasicTilings(*example.table().row(y.node)), (Vars{0, 1, 2}));
}

TEST(BasicTilings, AreTheRowsOfOtherOperators) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  const NodeEntry bias = example.Variable("bias", {6});
  for (const NodeEntry y : {example.AddBias("y", x, bias), example.SumRows("s", x),
                            example.Window("w", x, 2, 2), example.RowWise("r", {x, x})}) {
    const StrategyRow& row = *example.table().row(y.node);
    EXPECT_EQ(BasicTilings(row), Vars{0}) << row.op;
  }
}

TEST(BasicTilings, AreTheFirstTwoDimensionsOfElementwiseOperators) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6, 8});
  const NodeEntry y = example.Elementwise("y", {x, x});
  EXPECT_EQ(BasicTilings(*example.table().row(y.node)), (Vars{0, 1}));
}

// However the operator is split, each worker reads all rows.
TEST(BasicTilings, AreAllWhereNothingIndexesRows) {
  StrategyRow row = Convolution();
  row.inputs.resize(1);
  row.inputs[0].dims[0] = DimAccess();
  row.outputs[0].dims[0] = DimAccess();
  EXPECT_EQ(BasicTilings(row), row.splittable);
}

}  // namespace
}  // namespace tofu
