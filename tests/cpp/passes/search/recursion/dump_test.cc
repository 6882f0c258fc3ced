#include "passes/search/recursion/dump.h"

#include <gtest/gtest.h>

#include "graph/box.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

// y = x w, z = relu(y), and w's gradient.
class Dump : public testing::Test {
 protected:
  Dump() {
    const NodeEntry x = example_.Variable("x", {4, 6}, "data");
    const NodeEntry w = example_.Variable("w", {6, 8}, "parameter");
    const NodeEntry y = example_.MatMul("y", x, w);
    const NodeEntry z = example_.Elementwise("z", {y});
    const NodeEntry dw = example_.MatMul("dw", x, z, true, false);
    example_.After(dw, y);
    example_.Head(z, "output");
    example_.Head(dw, "gradient:w");
  }

  CoarseGraph Coarse() {
    return Coalesce(example_.graph(), example_.table(),
                    GroupForwardBackward(example_.graph(), example_.table()));
  }

  ExampleGraph example_;
};

TEST_F(Dump, GroupsNameOperatorsAndGradients) {
  EXPECT_EQ(DumpGroups(example_.graph(),
                       GroupForwardBackward(example_.graph(), example_.table())),
            "2 groups of operators\n"
            "  y (dot) + dw\n"
            "  z (relu)\n"
            "1 groups of tensors with gradients\n"
            "  w + dw\n");
}

TEST_F(Dump, ClassesNameTensorsOperatorsAndTheirSlots) {
  EXPECT_EQ(DumpClasses(example_.graph(), Coarse()),
            "5 tensors in 3 classes\n"
            "  t0 (4, 6): x\n"
            "  t1 (6, 8): w dw\n"
            "  t2 (4, 8): y z\n"
            "3 classes of operators\n"
            "  p0 x1: y | ->t2 t0 t1\n"
            "  p1 x1 element-wise: z | ->t2 t2\n"
            "  p2 x1: dw | ->t1 t0 t2\n");
}

TEST_F(Dump, ASearchSaysWhatItAddsAndHowItCuts) {
  SearchResult result;
  result.status = EliminateStatus::kOptimal;
  result.cost = 100;
  result.lower_bound = 90;
  result.num_variables = 7;
  result.cuts.tensors = {{0, 1}, {1, kReplicated}, {0, 0}};
  EXPECT_EQ(DumpSearch(Coarse(), result, {3, 2}, 60),
            "cut in 2: 40 bytes more, 100 so far, at least 90 so far; optimal over 7 "
            "variables\n"
            "  t0 (4, 6): 0 1\n"
            "  t1 (6, 8): 1 -\n"
            "  t2 (4, 8): 0 0\n");
}

TEST_F(Dump, APlanNamesVariablesCutsAndBytes) {
  Plan plan;
  plan.parts = {2};
  plan.tensor_cuts = {{0}, {kReplicated}, {0}, {0}, {1}};
  plan.op_cuts = {{kReplicated}, {kReplicated}, {0}, {0}, {kReplicated}};
  plan.node_bytes = {0, 0, 5, 0, 7};
  plan.step_bytes = {12};
  EXPECT_EQ(DumpPlan(example_.graph(), example_.table(), plan),
            "2 workers, 12 bytes\n"
            "x: (4, 6) cut 0\n"
            "w: (6, 8) cut -\n"
            "y (dot) split i, 5 bytes: (4, 8) cut 0\n"
            "z (relu) split x0, 0 bytes: (4, 8) cut 0\n"
            "dw (dot) split -, 7 bytes: (6, 8) cut 1\n");
}

TEST_F(Dump, AnImprovementHasItsThreeNumbers) {
  const std::string text = DumpImprovement(30, 20, 10);
  EXPECT_NE(text.find("recursion: 30 bytes\n"), std::string::npos);
  EXPECT_NE(text.find("improved: 20 bytes\n"), std::string::npos);
  EXPECT_NE(text.find("10 bytes\n"), std::string::npos);
}

}  // namespace
}  // namespace tofu
