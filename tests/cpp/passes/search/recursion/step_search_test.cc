#include "passes/search/recursion/step_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "graph/box.h"
#include "graph/head_roles.h"
#include "passes/search/plan_for.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

CoarseGraph Coarsen(ExampleGraph* example) {
  const Groups groups = GroupForwardBackward(example->graph(), example->table());
  return Coalesce(example->graph(), example->table(), groups);
}

// If the first step cuts along the batch, the second can only partly make up for it: the
// best first step alone is not part of the best plan. 8,192 elements for each of three
// products is the optimum if every operator fetches separately (4,096 less if the two
// that read w shared their fetches).
TEST(Search, ImprovesTheRecursionWhereTheOrderOfStepsMatters) {
  for (bool trained : {false, true}) {
    ExampleGraph example = OneLayer(64, 64, 64, trained);
    const Plan recursion = PlanFor(&example, 4, "recursion");
    const Plan plan = PlanFor(&example, 4);
    EXPECT_EQ(plan.total_bytes(), 3 * 8192 * 4);
    EXPECT_EQ(plan.lower_bound_bytes, plan.total_bytes());
    EXPECT_GT(recursion.total_bytes(), plan.total_bytes());
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
  }
}

// With wide layers and a small batch, weights do not move. Each of the L products and of
// the L-1 backward ones moves one activation; cutting along the contracted dimension
// costs (k-1) * batch * width each time. A large batch moves weights instead: reducing a
// weight gradient costs (k-1) * width^2, and so does fetching a whole weight; its
// backward use fetches it again.
TEST(Search, AnMlpCostsItsClosedForm) {
  constexpr int64_t kWidth = 64;
  for (int workers : {2, 3, 4}) {
    ExampleGraph large = Mlp(24 * 1024, kWidth * 3, 1);
    const int64_t width = kWidth * 3;
    // Batch everywhere: the weight is fetched once, its gradient and the
    // bias's reduced once each, and the bias fetched.
    const int64_t elements = (workers - 1) * (2 * width * width + 2 * width);
    EXPECT_EQ(PlanFor(&large, workers, "recursion", {workers}).total_bytes(),
              4 * elements)
        << workers << " workers";
  }
}

TEST(Search, AnUnrolledNetworkCostsMoreForEveryStep) {
  int64_t before = 0;
  for (int steps = 2; steps <= 20; ++steps) {
    ExampleGraph example = UnrolledRnn(64, 32, steps);
    const Plan plan = PlanFor(&example, 4);
    EXPECT_GT(plan.total_bytes(), before) << steps << " steps";
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
    before = plan.total_bytes();
  }
}

TEST(Search, AUnrolledNetworkIsAsSmallAProblemForAnyNumberOfSteps) {
  ExampleGraph few = UnrolledRnn(64, 32, 4);
  ExampleGraph many = UnrolledRnn(64, 32, 40);
  EXPECT_EQ(Coarsen(&few).operators.size(), Coarsen(&many).operators.size());
}

TEST(Search, ALongResidualNetworkIsSolvedExactly) {
  ExampleGraph example = Residual(512, 64, 500);
  const Plan plan = PlanFor(&example, 8);
  EXPECT_EQ(plan.status, PlanStatus::kOptimal);
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

TEST(Search, EqualInputGivesEqualPlans) {
  ExampleGraph example = Mlp(96, 48, 5);
  const Plan a = PlanFor(&example, 6);
  const Plan b = PlanFor(&example, 6);
  EXPECT_EQ(a.tensor_cuts, b.tensor_cuts);
  EXPECT_EQ(a.op_cuts, b.op_cuts);
}

TEST(Search, OneWorkerNeedsNoSteps) {
  ExampleGraph example = Mlp(8, 8, 1);
  const Plan plan = PlanFor(&example, 1);
  EXPECT_TRUE(plan.parts.empty());
  EXPECT_EQ(plan.total_bytes(), 0);
}

TEST(Search, AParameterIsCutLikeItsGradient) {
  ExampleGraph example = Mlp(64, 64, 3);
  const Graph& graph = example.graph();
  const Plan plan = PlanFor(&example, 8);
  for (size_t i = 0; i < graph.heads.size(); ++i) {
    const std::string name = RoleTarget(graph.head_roles[i], "gradient:");
    if (name.empty()) continue;
    const int variable = graph.first_entry[FindVariable(graph, name)];
    EXPECT_EQ(plan.tensor_cuts[variable],
              plan.tensor_cuts[graph.entry_id(graph.heads[i])])
        << name;
  }
}

TEST(Search, ATensorWithTooFewElementsIsReplicated) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {2, 2});
  const NodeEntry scalar = example.Variable("scalar", {});
  example.Head(example.Dropout("y", x), "output");
  example.Head(scalar, "output");
  const Plan plan = PlanFor(&example, 3);
  EXPECT_EQ(plan.tensor_cuts[0], std::vector<int>{kReplicated});
  EXPECT_EQ(plan.tensor_cuts[1], std::vector<int>{kReplicated});
  EXPECT_EQ(plan.total_bytes(), 2 * 4 * 4) << "two workers fetch what worker 0 drew";
}

TEST(Search, APinFixesItsClass) {
  ExampleGraph example = Mlp(64, 64, 2);
  PlanOptions options;
  options.workers = 4;
  options.pins = {{"fc0_weight", {1, 1}}};
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const int node = FindVariable(example.graph(), "fc0_weight");
  EXPECT_EQ(plan.tensor_cuts[example.graph().first_entry[node]],
            (std::vector<int>{1, 1}));
}

std::string PinError(const std::map<std::string, std::vector<int>>& pins) {
  ExampleGraph example = UnrolledRnn(6, 3, 2);
  PlanOptions options;
  options.workers = 4;
  options.pins = pins;
  try {
    MakePlan(example.graph(), example.table(), options);
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

TEST(Search, PinsThatDoNotFitAreExplained) {
  EXPECT_NE(PinError({{"nobody", {0, 0}}}).find("no tensor of that name"),
            std::string::npos);
  EXPECT_NE(PinError({{"wx", {0, 0, 0}}}).find("found 3 cuts, expected one for each"),
            std::string::npos);
  EXPECT_NE(PinError({{"wx", {2, 0}}}).find("found dimension 2"), std::string::npos);
  EXPECT_NE(PinError({{"wx", {0, 0}}}).find("step 2: found 1 elements left"),
            std::string::npos);
}

TEST(Search, OptionsThatMakeNoSenseAreExplained) {
  ExampleGraph example = Mlp(8, 8, 1);
  EXPECT_THROW(PlanFor(&example, 0), UserError);
  EXPECT_THROW(PlanFor(&example, 4, "fastest"), UserError);
  EXPECT_THROW(PlanFor(&example, 4, "tofu", {2, 3}), UserError);
}

}  // namespace
}  // namespace tofu
