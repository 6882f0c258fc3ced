#include "passes/partition/constants.h"

#include <gtest/gtest.h>

#include "support/mock_graph.h"

namespace tofu {
namespace {

class Constants : public testing::Test {
 protected:
  bool CanMake(NodeEntry entry, const Box& region) {
    return ConstantMaker(mock_.graph, mock_.table, &builder_).CanMake(entry, region);
  }

  StrategyRow* Row(NodeEntry entry) {
    return &mock_.table.rows[mock_.table.node_rows[entry.node]];
  }

  MockGraph mock_;
  GraphBuilder builder_;
  const Box part_ = {{2, 0}, {4, 4}};
};

TEST_F(Constants, AnyPartOfAFilledTensor) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  EXPECT_TRUE(CanMake(filled, part_));
  EXPECT_TRUE(CanMake(filled, WholeBox({4, 4})));
}

TEST_F(Constants, NotWhatReachesOutsideOrIsEmpty) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  EXPECT_FALSE(CanMake(filled, {{-1, 0}, {2, 4}}));
  EXPECT_FALSE(CanMake(filled, {{2, 0}, {2, 4}}));
}

TEST_F(Constants, NotVariablesNorWhatHasInputsOrIsRandomOrUnknown) {
  const NodeEntry x = mock_.Variable("x", {4, 4});
  EXPECT_FALSE(CanMake(x, part_));
  EXPECT_FALSE(CanMake(mock_.Elementwise("add", {x}), part_));
  EXPECT_FALSE(CanMake(mock_.Noise({4, 4}), part_));
  EXPECT_FALSE(CanMake(mock_.Undescribed(x), part_));
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  Row(filled)->random = true;
  EXPECT_FALSE(CanMake(filled, part_));
}

// An operator that may not be split along a dimension can depend on its index.
TEST_F(Constants, NotPartsOfADimensionThatIsNotSplit) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  Row(filled)->splittable = {1};
  EXPECT_FALSE(CanMake(filled, part_));
  EXPECT_TRUE(CanMake(filled, {{0, 2}, {4, 4}}));
  Row(filled)->splittable = {0, 1};
  Row(filled)->outputs[0].dims[0].whole = true;
  EXPECT_FALSE(CanMake(filled, part_));
}

// The other attribute could be an offset.
TEST_F(Constants, NotWhereAnotherAttributeChanges) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  StrategyRow* row = Row(filled);
  row->attrs.push_back(row->attrs[0]);
  EXPECT_FALSE(CanMake(filled, part_));
  row->attrs.resize(1);
  row->attrs[0].kind = AttrRewrite::Kind::kConst;
  EXPECT_FALSE(CanMake(filled, part_));
}

TEST_F(Constants, ReadersOfAWorkerShareSmallZerosOfTheSameTypeAndSize) {
  ConstantMaker maker(mock_.graph, mock_.table, &builder_);
  constexpr int kFloat32 = 0;
  constexpr int kFloat64 = 1;
  const auto zeros = [&](const Shape& shape, int dtype, int worker) {
    return maker.Zeros(shape, dtype, worker, "reader").node;
  };
  const int first = zeros({8}, kFloat32, 0);
  EXPECT_EQ(zeros({8}, kFloat32, 0), first);
  EXPECT_NE(zeros({4}, kFloat32, 0), first);
  EXPECT_NE(zeros({8}, kFloat64, 0), first);
  EXPECT_NE(zeros({8}, kFloat32, 1), first);
  const Shape large = {4097};  // 16 KiB and one element
  EXPECT_NE(zeros(large, kFloat32, 0), zeros(large, kFloat32, 0));
}

}  // namespace
}  // namespace tofu
