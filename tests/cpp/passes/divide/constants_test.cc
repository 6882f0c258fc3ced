#include "passes/divide/constants.h"

#include <gtest/gtest.h>

#include "support/mock_graph.h"

namespace tofu {
namespace {

class Constants : public testing::Test {
 protected:
  bool IsConstant(NodeEntry entry, const std::vector<int>& dims) {
    return IsConstantAlong(mock_.graph, mock_.table, entry, dims);
  }

  StrategyRow* Row(NodeEntry entry) {
    return &mock_.table.rows[mock_.table.node_rows[entry.node]];
  }

  MockGraph mock_;
};

TEST_F(Constants, AnyPartOfAFilledTensor) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  EXPECT_TRUE(IsConstant(filled, {0}));
  EXPECT_TRUE(IsConstant(filled, {}));
}

TEST_F(Constants, NotVariablesNorWhatHasInputsOrIsRandomOrUnknown) {
  const NodeEntry x = mock_.Variable("x", {4, 4});
  EXPECT_FALSE(IsConstant(x, {0}));
  EXPECT_FALSE(IsConstant(mock_.Elementwise("add", {x}), {0}));
  EXPECT_FALSE(IsConstant(mock_.Noise({4, 4}), {0}));
  EXPECT_FALSE(IsConstant(mock_.Undescribed(x), {0}));
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  Row(filled)->random = true;
  EXPECT_FALSE(IsConstant(filled, {0}));
}

// An operator that may not be split along a dimension can depend on its index.
TEST_F(Constants, NotPartsOfADimensionThatIsNotSplit) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  Row(filled)->splittable = {1};
  EXPECT_FALSE(IsConstant(filled, {0}));
  EXPECT_TRUE(IsConstant(filled, {1}));
  Row(filled)->splittable = {0, 1};
  Row(filled)->outputs[0].dims[0].whole = true;
  EXPECT_FALSE(IsConstant(filled, {0}));
}

// The other attribute could be an offset.
TEST_F(Constants, NotWhereAnotherAttributeChanges) {
  const NodeEntry filled = mock_.Filled({4, 4}, "2");
  StrategyRow* row = Row(filled);
  row->attrs.push_back(row->attrs[0]);
  EXPECT_FALSE(IsConstant(filled, {0}));
  row->attrs.resize(1);
  row->attrs[0].kind = AttrRewrite::Kind::kConst;
  EXPECT_FALSE(IsConstant(filled, {0}));
}

}  // namespace
}  // namespace tofu
