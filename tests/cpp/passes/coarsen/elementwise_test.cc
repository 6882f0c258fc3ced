#include "passes/coarsen/elementwise.h"

#include <gtest/gtest.h>

#include "support/example_graphs.h"

namespace tofu {
namespace {

// sum = a + b of 4 x 6 elements, with a row that a test may change.
class Elementwise : public testing::Test {
 protected:
  Elementwise() {
    const NodeEntry a = example_.Variable("a", {4, 6});
    const NodeEntry b = example_.Variable("b", {4, 6});
    example_.Head(example_.Elementwise("sum", {a, b}, "add"), "output");
    table_ = example_.table();
  }

  StrategyRow& row() { return table_.rows[0]; }
  bool Is() { return IsElementwise(example_.graph(), table_, 2); }

  ExampleGraph example_;
  StrategyTable table_;
};

TEST_F(Elementwise, TouchesEachTensorAtTheOutputsIndex) {
  EXPECT_TRUE(Is());
  EXPECT_FALSE(IsElementwise(example_.graph(), table_, 0)) << "a variable has no row";
  EXPECT_EQ(DimensionVars(row()), (std::vector<int>{0, 1}));
}

TEST_F(Elementwise, NeedsTheFlag) {
  row().elementwise = false;
  EXPECT_FALSE(Is());
}

TEST_F(Elementwise, AShiftedOrScaledInputIsNone) {
  row().inputs[1].dims[0].lo.constant = 1;
  EXPECT_FALSE(Is());
  row().inputs[1].dims[0].lo.constant = 0;
  row().inputs[1].dims[0].hi.terms[0].coef = 2;
  EXPECT_FALSE(Is());
  row().inputs[1].dims[0].hi.terms[0].coef = 1;
  row().inputs[1].dims[0].hi.divisor = 2;
  EXPECT_FALSE(Is());
  row().inputs[1].dims[0].hi.divisor = 1;
  EXPECT_TRUE(Is());
  row().inputs[1].dims[0].lo.terms[0].upper = true;
  EXPECT_FALSE(Is()) << "the last element of the part alone";
}

TEST_F(Elementwise, ATransposedInputIsNone) {
  std::swap(row().inputs[1].dims[0], row().inputs[1].dims[1]);
  EXPECT_FALSE(Is());
}

TEST_F(Elementwise, AWholeDimensionIsNone) {
  row().inputs[1].dims[1] = DimAccess();
  EXPECT_FALSE(Is());
}

TEST_F(Elementwise, AnUnlistedInputIsNone) {
  row().inputs.pop_back();
  EXPECT_FALSE(Is());
}

TEST_F(Elementwise, AReductionPaddingOrAFirstPartIsNone) {
  row().outputs[0].reduce[0] = Reducer::kSum;
  EXPECT_FALSE(Is());
  row().outputs[0].reduce.clear();
  row().inputs[0].only_first = {0};
  EXPECT_FALSE(Is());
  row().inputs[0].only_first.clear();
  row().inputs[0].pad = Padding{{0}, "0"};
  EXPECT_FALSE(Is());
}

TEST_F(Elementwise, EveryDimensionHasASplittableVariableOfItsOwn) {
  row().splittable = {0};
  EXPECT_FALSE(Is());
  row().splittable = {0, 1};
  for (InputAccess& input : row().inputs) input.dims[1] = input.dims[0];
  row().outputs[0].dims[1] = row().outputs[0].dims[0];
  EXPECT_FALSE(Is()) << "both dimensions along one variable";
}

TEST(ElementwiseShapes, AnInputOfAnotherShapeIsNone) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  example.Head(example.AddBias("y", x, example.Variable("bias", {6})), "output");
  StrategyTable table = example.table();
  table.rows[0].elementwise = true;
  EXPECT_FALSE(IsElementwise(example.graph(), table, 2));
}

TEST(ElementwiseShapes, HowADimensionOfOneElementIsTouchedDoesNotMatter) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 1});
  example.Head(example.Elementwise("y", {x}), "output");
  StrategyTable table = example.table();
  table.rows[0].inputs[0].dims[1] = DimAccess();
  EXPECT_TRUE(IsElementwise(example.graph(), table, 1));
}

}  // namespace
}  // namespace tofu
