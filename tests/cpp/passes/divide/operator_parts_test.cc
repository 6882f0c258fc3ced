#include "passes/divide/operator_parts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// The part of each worker, of a node that is split by `cuts`.
std::vector<OperatorPart> Parts(const MockGraph& mock, NodeEntry op,
                                const std::vector<int>& parts,
                                const std::vector<int>& cuts) {
  Plan plan = ReplicatedPlan(mock, parts);
  plan.op_cuts[op.node] = cuts;
  std::vector<OperatorPart> all;
  for (int w = 0; w < plan.workers(); ++w) {
    all.push_back(PartOf(mock.graph, mock.table, plan, op.node, w));
  }
  return all;
}

TEST(OperatorParts, ASumOverAPieceNeedsThatPieceAndMakesTheWholeOutput) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 8});
  const NodeEntry w = mock.Variable("w", {6, 8});
  const NodeEntry y = mock.FullyConnected(x, w, mock.Variable("bias", {6}));
  const auto parts = Parts(mock, y, {2}, {2});
  EXPECT_EQ(parts[1].inputs[0].box, (Box{{0, 4}, {4, 8}}));
  EXPECT_EQ(parts[1].inputs[1].box, (Box{{0, 4}, {6, 8}}));
  EXPECT_EQ(parts[1].outputs[0], (Box{{0, 0}, {4, 6}}));
  EXPECT_FALSE(parts[0].inputs[2].zeros);
  EXPECT_TRUE(parts[1].inputs[2].zeros) << "the bias is added once";
  EXPECT_EQ(parts[1].attrs.at("num_hidden"), "6");
}

TEST(OperatorParts, SizesFollowTheVariablesThatAreSplit) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 8});
  const NodeEntry w = mock.Variable("w", {6, 8});
  const NodeEntry y = mock.FullyConnected(x, w, mock.Variable("bias", {6}));
  AttrRewrite& hidden = mock.table.rows.back().attrs[0];
  EXPECT_EQ(Parts(mock, y, {3}, {1})[2].attrs.at("num_hidden"), "2");
  hidden.times = 5;
  EXPECT_EQ(Parts(mock, y, {3}, {1})[2].attrs.at("num_hidden"), "10");
  hidden.kind = AttrRewrite::Kind::kSizes;
  hidden.sizes = {1, 0};
  EXPECT_EQ(Parts(mock, y, {3}, {1})[2].attrs.at("num_hidden"), "(2, 4)");
  hidden.kind = AttrRewrite::Kind::kBegin;
  EXPECT_EQ(Parts(mock, y, {3}, {1})[2].attrs.at("num_hidden"), "4");
  hidden.kind = AttrRewrite::Kind::kSize;
  EXPECT_THROW(Parts(mock, y, {3}, {1}), UserError) << "one size of two variables";
}

TEST(OperatorParts, AnOutputShapeThatDoesNotExistIsTheTablesFault) {
  MockGraph mock;
  const NodeEntry y = mock.BroadcastRows(mock.Variable("x", {4}), 6);
  EXPECT_EQ(Parts(mock, y, {2}, {0})[1].attrs.at("shape"), "(3, 4)");
  mock.table.rows.back().attrs[0].output = 1;
  try {
    Parts(mock, y, {2}, {0});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kTable);
  }
}

// Windows of 3 at stride 1 with one element of padding make 12 outputs of 12 inputs.
TEST(OperatorParts, APaddedRegionReachesOutsideOnlyWhereItsVariableIsSplit) {
  MockGraph mock;
  const NodeEntry image = mock.Variable("image", {2, 4, 12});
  const NodeEntry y = mock.MaxPool1d(image, 3, 1, 1);
  const auto by_x = Parts(mock, y, {2}, {2});
  EXPECT_EQ(by_x[0].inputs[0].box, (Box{{0, 0, -1}, {2, 4, 7}}));
  EXPECT_EQ(by_x[1].inputs[0].box, (Box{{0, 0, 5}, {2, 4, 13}}));
  EXPECT_EQ(by_x[0].inputs[0].fill, "-inf");
  EXPECT_EQ(by_x[0].attrs.at("pad"), "0");
  const auto by_batch = Parts(mock, y, {2}, {0});
  EXPECT_EQ(by_batch[1].inputs[0].box, (Box{{1, 0, 0}, {2, 4, 12}}));
  EXPECT_EQ(by_batch[1].attrs.at("pad"), "1");
}

TEST(OperatorParts, ARegionWithoutPaddingIsClipped) {
  MockGraph mock;
  const NodeEntry image = mock.Variable("image", {2, 4, 12});
  const NodeEntry y = mock.MaxPool1d(image, 3, 1, 1);
  mock.table.rows.back().inputs[0].pad.reset();
  EXPECT_EQ(Parts(mock, y, {2}, {2})[0].inputs[0].box, (Box{{0, 0, 0}, {2, 4, 7}}));
}

// An operator that sums up all elements up to its own has such a region.
TEST(OperatorParts, ARegionMayDependOnASplitVariableAtOneEndOnly) {
  MockGraph mock;
  const NodeEntry y = mock.Elementwise("relu", {mock.Variable("x", {8})});
  DimAccess& access = mock.table.rows.back().inputs[0].dims[0];
  const AffineForm index = access.lo;
  access.lo = AffineForm();
  EXPECT_EQ(Parts(mock, y, {2}, {0})[0].inputs[0].box, (Box{{0}, {4}}));
  EXPECT_EQ(Parts(mock, y, {2}, {0})[1].inputs[0].box, (Box{{0}, {8}}));
  access.lo = index;
  access.hi = AffineForm();
  access.hi.constant = 7;
  EXPECT_EQ(Parts(mock, y, {2}, {0})[1].inputs[0].box, (Box{{4}, {8}}));
}

// An operator that reads only the second half gets everything if nothing is split.
TEST(OperatorParts, AnUnsplitDimensionIsWholeAlthoughElementsAreSkipped) {
  MockGraph mock;
  const NodeEntry y = mock.SecondHalf(mock.Variable("x", {8}));
  EXPECT_EQ(Parts(mock, y, {2}, {kReplicated})[1].inputs[0].box, (Box{{0}, {8}}));
  EXPECT_EQ(Parts(mock, y, {2}, {0})[1].inputs[0].box, (Box{{6}, {8}}));
}

TEST(OperatorParts, ARandomOperatorIsIdleBehindTheFirstPartOfAWholeStep) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry noise = mock.Elementwise("noise", {x});
  const NodeEntry sum = mock.Elementwise("add", {x});
  std::vector<bool> active;
  for (const OperatorPart& part : Parts(mock, noise, {2, 2}, {0, kReplicated})) {
    active.push_back(part.active);
  }
  EXPECT_EQ(active, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(Parts(mock, sum, {2, 2}, {0, kReplicated})[1].active);
}

TEST(OperatorParts, AnUndescribedOperatorIsWholeEverywhere) {
  MockGraph mock;
  const NodeEntry y = mock.Undescribed(mock.Variable("x", {4}));
  const auto parts = Parts(mock, y, {3}, {kReplicated});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].inputs[0].box, (Box{{0}, {4}}));
  EXPECT_EQ(parts[2].outputs[0], (Box{{0}, {4}}));
}

TEST(OperatorParts, ReductionsAreOfTheStepsThatSplitThem) {
  MockGraph mock;
  const NodeEntry moments = mock.Moments(mock.Variable("x", {8, 4}));
  Plan plan = ReplicatedPlan(mock, {2, 2, 2});
  plan.op_cuts[moments.node] = {0, 1, 0};
  const OutputReduction sum = ReductionOf(mock.graph, mock.table, plan, moments.node, 0);
  EXPECT_EQ(sum.steps, (std::vector<int>{0, 2}));
  EXPECT_EQ(sum.reduce, Reducer::kSum);
  EXPECT_EQ(ReductionOf(mock.graph, mock.table, plan, moments.node, 1).reduce,
            Reducer::kMax);
  EXPECT_TRUE(ReductionOf(mock.graph, mock.table, plan, moments.node, 2).steps.empty());
}

TEST(OperatorParts, OnlyTofusOwnAttributesAreRemoved) {
  EXPECT_EQ(WithoutTofuAttrs({{"__tofu_role__", "a"}, {"__lr__", "b"}, {"axis", "c"}}),
            (std::map<std::string, std::string>{{"__lr__", "b"}, {"axis", "c"}}));
}

}  // namespace
}  // namespace tofu
