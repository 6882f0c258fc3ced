#include "passes/search/tilings/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/box.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

constexpr int kW = kReplicated;  // whole
constexpr size_t kLimit = 100;

std::vector<Cuts> OfTensor(const Shape& shape, const Cuts& given,
                           const std::vector<int>& parts, bool may_be_whole = false,
                           bool same_dimension = false) {
  Restrictions restrictions;
  restrictions.same_dimension = same_dimension;
  bool complete = false;
  const auto found = TensorAlternatives(shape, given, parts, restrictions, may_be_whole,
                                        kLimit, &complete);
  EXPECT_TRUE(complete);
  return found;
}

TEST(Alternatives, ATensorIsWholeOnlyWhereNothingCanBeCutOrItMay) {
  EXPECT_EQ(OfTensor({4, 6}, {kFree}, {2}), (std::vector<Cuts>{{0}, {1}}));
  EXPECT_EQ(OfTensor({4, 6}, {kFree}, {2}, true), (std::vector<Cuts>{{0}, {1}, {kW}}));
  EXPECT_EQ(OfTensor({5, 7}, {kFree}, {2}), (std::vector<Cuts>{{0}, {1}}));
  EXPECT_EQ(OfTensor({1, 1}, {kFree}, {2}), (std::vector<Cuts>{{kW}}));
}

TEST(Alternatives, GivenDecisionsStay) {
  for (const Cuts& cuts : OfTensor({8, 8}, {1, kFree, kW}, {2, 2, 2}, true)) {
    EXPECT_EQ(cuts[0], 1);
    EXPECT_EQ(cuts[2], kW);
  }
}

TEST(Alternatives, MoreThanTheLimitAreNotComplete) {
  bool complete = true;
  TensorAlternatives({8, 8}, {kFree, kFree}, {2, 2}, {}, false, 3, &complete);
  EXPECT_FALSE(complete);
  TensorAlternatives({8, 8}, {kFree, kFree}, {2, 2}, {}, false, 4, &complete);
  EXPECT_TRUE(complete);
}

TEST(Alternatives, OneDimensionForAllStepsGivesWayWhereItDividesNoFurther) {
  EXPECT_EQ(OfTensor({8, 8}, {kFree, kFree}, {2, 2}, false, true),
            (std::vector<Cuts>{{0, 0}, {1, 1}}));
  EXPECT_EQ(OfTensor({2, 8}, {kFree, kFree}, {2, 2}, false, true),
            (std::vector<Cuts>{{0, 1}, {1, 1}}));
  EXPECT_EQ(OfTensor({8, 8}, {kFree, kFree}, {2, 2}, true, true),
            (std::vector<Cuts>{{0, 0}, {1, 1}, {kW, kW}}));
  EXPECT_EQ(OfTensor({}, {kFree}, {2}, false, true), (std::vector<Cuts>{{kW}}));
}

TEST(Alternatives, FillAlikePrefersTheFirstThenTheOthersInTheirOrder) {
  EXPECT_EQ(
      FillAlike(CutExtents({6, 4, 2}), {2, 0, 1}, 1, {kFree, kFree, kFree}, {2, 2, 2}),
      (Cuts{1, 1, 2}));
  EXPECT_EQ(FillAlike(CutExtents({3, 5}), {0, 1}, 0, {kFree}, {2}), (Cuts{1}))
      << "3 are not cut evenly";
  EXPECT_EQ(FillAlike(CutExtents({3, 1}), {0, 1}, 0, {kFree}, {2}), (Cuts{0}));
  EXPECT_EQ(FillAlike(CutExtents({1, 1}), {0, 1}, 0, {kFree}, {2}), (Cuts{kW}));
  EXPECT_EQ(FillAlike(CutExtents({4}), {}, 0, {kFree, 0}, {2, 4}), (Cuts{kW, 0}))
      << "a later given cut needs the whole extent";
}

std::vector<Cuts> OfOperator(ExampleGraph* example, int node, const Cuts& given,
                             const std::vector<int>& parts,
                             const Restrictions& restrictions = {}) {
  bool complete = false;
  const auto alternatives = OperatorAlternatives(
      VariablesOf(example->graph(), example->table(), node, restrictions), given, parts,
      restrictions, kLimit, &complete);
  EXPECT_TRUE(complete);
  return alternatives;
}

TEST(Alternatives, AnOperatorIsSplitAlongSplittableVariables) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 6});
  example.MatMul("y", x, example.Variable("w", {6, 3}));
  example.Opaque("z", {x}, {4});
  EXPECT_EQ(OfOperator(&example, 2, {kFree}, {2}), (std::vector<Cuts>{{0}, {2}}));
  EXPECT_EQ(OfOperator(&example, 2, {kFree}, {7}), (std::vector<Cuts>{{kW}}));
  EXPECT_EQ(OfOperator(&example, 3, {kFree}, {2}), (std::vector<Cuts>{{kW}}));
}

TEST(Alternatives, PartsOfOneOutputAreCombinedInOneWay) {
  ExampleGraph example;
  example.SumOfLargest("y", example.Variable("x", {4, 4}));
  const auto cuts = OfOperator(&example, 1, {kFree, kFree}, {2, 2});
  EXPECT_EQ(cuts, (std::vector<Cuts>{{0, 0}, {1, 1}}));
}

TEST(Alternatives, AStepThatCouldOnlyMixReductionsIsWhole) {
  ExampleGraph example;
  example.SumOfLargest("y", example.Variable("x", {2, 3}));
  const auto cuts = OfOperator(&example, 1, {kFree, kFree}, {2, 3});
  EXPECT_EQ(cuts, (std::vector<Cuts>{{0, kW}, {kW, 1}, {kW, kW}}));
}

TEST(Alternatives, WithoutOutputReductionASumIsSplitOnlyWhereNothingElseIsCutEvenly) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 12});
  example.MatMul("y", x, example.Variable("w", {12, 3}));
  example.MatMul("z", example.Variable("v", {3, 6}), example.Variable("u", {6, 3}));
  Restrictions restrictions;
  restrictions.forbid_output_reduction = true;
  EXPECT_EQ(OfOperator(&example, 2, {kFree}, {2}, restrictions),
            (std::vector<Cuts>{{0}}));
  EXPECT_EQ(OfOperator(&example, 5, {kFree}, {2}, restrictions),
            (std::vector<Cuts>{{2}}));
  EXPECT_EQ(OfOperator(&example, 2, {2, kFree}, {2, 2}, restrictions),
            (std::vector<Cuts>{{2, 0}}))
      << "what is given may reduce";
}

// Whether the last operator of the example may skip elements.
bool MaySkip(ExampleGraph* example) {
  return MaySkipElements(example->graph(), example->table().rows.back(),
                         example->graph().num_nodes() - 1);
}

TEST(Alternatives, WindowsThatLeaveColumnsBetweenThemOrAtTheEndSkipElements) {
  struct Case {
    int64_t columns;
    int width, stride;
    bool skips;
  };
  for (const Case& c : {Case{8, 1, 1, false}, Case{8, 3, 1, false}, Case{8, 2, 2, false},
                        Case{7, 3, 2, false}, Case{8, 1, 2, true}, Case{9, 2, 3, true},
                        Case{7, 2, 2, true}, Case{9, 2, 2, true}}) {
    ExampleGraph example;
    example.Window("y", example.Variable("x", {4, c.columns}), c.width, c.stride);
    EXPECT_EQ(MaySkip(&example), c.skips)
        << c.columns << " columns, width " << c.width << ", stride " << c.stride;
  }
}

TEST(Alternatives, AWindowWhoseOwnElementsMayBeSplitSkipsThoseOfTheOthers) {
  ExampleGraph example;
  example.Window("y", example.Variable("x", {4, 8}), 2, 2);
  StrategyRow row = example.table().rows.back();
  row.splittable = {0, 1, 2};  // d, too
  EXPECT_TRUE(MaySkipElements(example.graph(), row, 1));
  row.splittable = {0};  // x is taken whole
  EXPECT_FALSE(MaySkipElements(example.graph(), row, 1));
}

TEST(Alternatives, ADiagonalSkipsElements) {
  ExampleGraph example;
  example.Elementwise("y", {example.Variable("x", {4, 4})});
  StrategyRow row = example.table().rows.back();
  EXPECT_FALSE(MaySkipElements(example.graph(), row, 1));
  row.inputs[0].dims[1] = row.inputs[0].dims[0];
  EXPECT_TRUE(MaySkipElements(example.graph(), row, 1));
}

TEST(Alternatives, HalvedIndicesSkipNothing) {
  ExampleGraph example;
  example.Elementwise("y", {example.Variable("x", {4})});
  StrategyRow row = example.table().rows.back();
  row.inputs[0].dims[0] = {false, {{{0, false, 1}}, 0, 2}, {{{0, true, 1}}, 3, 2}};
  EXPECT_FALSE(MaySkipElements(example.graph(), row, 1));  // x[(i .. i + 3) / 2]
  row.inputs[0].dims[0] = {false, {{{0, false, 4}}, 0, 2}, {{{0, true, 4}}, 1, 2}};
  EXPECT_TRUE(MaySkipElements(example.graph(), row, 1));  // x[2 i]
}

}  // namespace
}  // namespace tofu
