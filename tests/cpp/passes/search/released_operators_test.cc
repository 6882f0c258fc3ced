#include "passes/search/released_operators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/cuts.h"
#include "passes/coarsen/group.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

class ReleasedOperators : public testing::Test {
 protected:
  ReleasedOperators() {
    const NodeEntry x = example_.Variable("x", {8, 6});
    first_ = example_.Elementwise("first", {x});
    second_ = example_.Elementwise("second", {first_});
    both_ = example_.Elementwise("both", {first_, second_});
    product_ = example_.MatMul("product", both_, example_.Variable("w", {6, 4}));
    example_.Head(product_, "output");
    const Graph& graph = example_.graph();
    fine_ = Coalesce(graph, example_.table(),
                     GroupForwardBackward(graph, example_.table()), {false, false});
    plan_.parts = {2};
    plan_.tensor_cuts.assign(static_cast<size_t>(graph.num_entries()), Cuts(1, 0));
  }

  void CutByColumns(NodeEntry entry) {
    plan_.tensor_cuts[example_.graph().entry_id(entry)] = Cuts(1, 1);
  }

  std::vector<std::string> Found() {
    const Graph& graph = example_.graph();
    const std::vector<bool> released =
        OperatorsToRelease(graph, example_.table(), fine_, plan_);
    std::vector<std::string> names;
    for (size_t node = 0; node < released.size(); ++node) {
      if (released[node]) names.push_back(graph.nodes[node].name);
    }
    return names;
  }

  ExampleGraph example_;
  NodeEntry first_, second_, both_, product_;
  CoarseGraph fine_;
  Plan plan_;
};

TEST_F(ReleasedOperators, AreNoneIfAllTensorsOfEveryElementwiseOperatorAreCutAlike) {
  CutByColumns(product_);
  EXPECT_EQ(Found(), std::vector<std::string>());
}

TEST_F(ReleasedOperators, AreAllOfTheKindOfOneThatConverts) {
  CutByColumns(second_);
  CutByColumns(both_);
  EXPECT_EQ(Found(), (std::vector<std::string>{"first", "second", "both"}));
}

TEST_F(ReleasedOperators, AreNotThoseOfAnotherKind) {
  CutByColumns(both_);
  EXPECT_EQ(Found(), (std::vector<std::string>{"both"}));
}

TEST_F(ReleasedOperators, AreAlsoThoseThatNothingReads) {
  const NodeEntry dead = example_.Elementwise("dead", {first_, both_, both_});
  const Graph& graph = example_.graph();
  fine_ = Coalesce(graph, example_.table(), GroupForwardBackward(graph, example_.table()),
                   {false, false});
  plan_.tensor_cuts.emplace_back(1, 1);
  CutByColumns(both_);
  CutByColumns(dead);
  EXPECT_EQ(Found(), (std::vector<std::string>{"both", "dead"}));
}

}  // namespace
}  // namespace tofu
