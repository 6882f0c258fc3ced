#include "passes/search/tilings/class_cuts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/names.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

class ClassCutsTest : public testing::Test {
 protected:
  ClassCutsTest() : example_(UnrolledRnn(8, 8, 3)) {
    const Graph& graph = example_.graph();
    coarse_ =
        Coalesce(graph, example_.table(), GroupForwardBackward(graph, example_.table()));
    PlanOptions options;
    options.workers = 4;
    plan_ = MakePlan(graph, example_.table(), options);
  }

  int Node(const std::string& name) {
    const int entry = FindEntry(example_.graph(), name);
    int node = 0;
    while (example_.graph().first_entry[node] != entry) ++node;
    return node;
  }

  std::string Error() {
    try {
      ClassCutsOf(example_.graph(), coarse_, plan_);
    } catch (const UserError& error) {
      EXPECT_EQ(error.blame(), Blame::kPlan);
      return error.what();
    }
    return "no error";
  }

  ExampleGraph example_;
  CoarseGraph coarse_;
  Plan plan_;
};

TEST_F(ClassCutsTest, AreThoseOfEveryMember) {
  const ClassCuts cuts = ClassCutsOf(example_.graph(), coarse_, plan_);
  ASSERT_EQ(cuts.tensors.size(), coarse_.tensors.size());
  for (size_t entry = 0; entry < coarse_.tensor_class.size(); ++entry) {
    EXPECT_EQ(cuts.tensors[coarse_.tensor_class[entry]], Cuts(plan_.tensor_cuts[entry]));
  }
  ASSERT_EQ(cuts.operators.size(), coarse_.operators.size());
  for (size_t p = 0; p < cuts.operators.size(); ++p) {
    if (coarse_.operators[p].elementwise) continue;
    for (int node : coarse_.operators[p].nodes) {
      EXPECT_EQ(cuts.operators[p], Cuts(plan_.op_cuts[node]));
    }
  }
}

TEST_F(ClassCutsTest, ATensorThatIsCutOtherwiseThanItsClassIsNamed) {
  auto& cuts = plan_.tensor_cuts[FindEntry(example_.graph(), "t2_h")];
  cuts[1] = cuts[1] == 0 ? 1 : 0;
  const std::string error = Error();
  EXPECT_NE(error.find("\"t2_h\""), std::string::npos) << error;
}

TEST_F(ClassCutsTest, AnOperatorThatIsSplitOtherwiseThanItsClassIsNamed) {
  auto& cuts = plan_.op_cuts[Node("t2_mh")];
  cuts[1] = cuts[1] == 0 ? 1 : 0;
  const std::string error = Error();
  EXPECT_NE(error.find("\"t2_mh\""), std::string::npos) << error;
}

// A plan may have been made with finer classes than coarsening makes by default.
TEST_F(ClassCutsTest, TheClassesAreTheCoarsestThatThePlanCutsAlike) {
  const Graph& graph = example_.graph();
  const auto classes = [&] { return ClassesOf(graph, example_.table(), plan_); };
  EXPECT_EQ(classes().op_class, coarse_.op_class);
  auto& cuts = plan_.op_cuts[Node("t2_mh")];
  cuts[1] = cuts[1] == 0 ? 1 : 0;
  const CoarseGraph fine = classes();
  EXPECT_NE(fine.op_class[Node("t1_mh")], fine.op_class[Node("t2_mh")]);
  EXPECT_NO_THROW(ClassCutsOf(graph, fine, plan_));
}

}  // namespace
}  // namespace tofu
