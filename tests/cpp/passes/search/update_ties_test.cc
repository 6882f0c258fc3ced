// Compares plans whose gradients and optimizer states are cut apart from their parameters
// (ZeRO's stages) with all such plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "passes/coarsen/group.h"
#include "passes/search/make_frontier.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "passes/search/tilings/class_cuts.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"
#include "support/recount_time.h"

namespace tofu {
namespace {

constexpr size_t kWays = 4000;  // to cut the tensors, at most

const std::vector<int>& CutsOf(const Graph& graph, const Plan& plan,
                               const std::string& name) {
  return plan.tensor_cuts[graph.first_entry[FindVariable(graph, name)]];
}

bool IsApart(const Graph& graph, const Plan& plan) {
  const int state = FindVariable(graph, "w:state1");
  return state >= 0 && CutsOf(graph, plan, "w") != CutsOf(graph, plan, "w:state1");
}

CoarseGraph Apart(ExampleGraph* example) {
  return Coalesce(example->graph(), example->table(),
                  GroupForwardBackward(example->graph(), example->table()),
                  {true, true, {}, UpdateTies::kNone});
}

PlanOptions OptionsOf(const std::vector<int>& parts) {
  PlanOptions options;
  options.parts = parts;
  for (int part : parts) options.workers *= part;
  options.allow_replication = true;
  return options;
}

class UpdatesApart : public testing::TestWithParam<std::vector<int>> {};

TEST_P(UpdatesApart, EqualBruteForceInBytes) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    ExampleGraph example = TrainedGraph(seed);
    const Graph& graph = example.graph();
    const CoarseGraph coarse = Apart(&example);
    const int64_t expected = BruteForceBytes(
        graph, example.table(), coarse,
        {GetParam(), kWays, ReplicableTensors(graph, example.table(), coarse)});
    if (expected < 0) continue;
    ++compared;
    const Plan plan = MakePlan(graph, example.table(), OptionsOf(GetParam()));
    ASSERT_EQ(plan.total_bytes(), expected) << "seed " << seed << WriteGraph(graph);
    ASSERT_EQ(Recount(graph, example.table(), plan), expected) << "seed " << seed;
    ASSERT_EQ(plan.status, PlanStatus::kOptimal);
    ASSERT_TRUE(CutsAlike(ClassesOf(graph, example.table(), plan), plan));
  }
  EXPECT_GE(compared, 100);
}

TEST_P(UpdatesApart, EqualBruteForceInTime) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 900; ++seed) {
    ExampleGraph example = TrainedGraph(seed);
    const Graph& graph = example.graph();
    PlanOptions options = OptionsOf(GetParam());
    const TimeModel model = ModelOf(graph, TwoHosts(4, true));
    options.objective.machine = &model;
    const CoarseGraph coarse = Apart(&example);
    const TimeRecount recount(graph, example.table(), model.machine, model.works,
                              Parameters(graph));
    const NodeCost cost = [&](const Plan& plan, int node) {
      return recount.OfNode(plan, node).ns;
    };
    const std::vector<bool> may_be_whole(coarse.tensors.size(), true);
    const int64_t best = BruteForceCost(graph, example.table(), coarse,
                                        {GetParam(), 300, may_be_whole, true}, cost);
    if (best < 0) continue;
    ++compared;
    const Plan plan = MakePlan(graph, example.table(), options);
    // Each term may be rounded differently.
    const int64_t slack = 4 * graph.num_nodes();
    ASSERT_NEAR(static_cast<double>(plan.cost()), static_cast<double>(best),
                static_cast<double>(slack))
        << "seed " << seed << WriteGraph(graph);
  }
  EXPECT_GE(compared, 40);
}

INSTANTIATE_TEST_SUITE_P(Search, UpdatesApart,
                         testing::Values(std::vector<int>{2}, std::vector<int>{3},
                                         std::vector<int>{4}, std::vector<int>{2, 2}));

// If a limit leaves no room for a whole state, the weight can still be whole.
TEST(UpdateTies, AWholeWeightWithACutStateFitsWhereAWholeStateDoesNot) {
  int apart = 0;
  int cheaper = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    ExampleGraph example = TrainedGraph(seed);
    PlanOptions options = OptionsOf({2});
    const PlanFrontier untied =
        MakeFrontier(example.graph(), example.table(), options, 1000);
    options.tie_updates = true;
    const PlanFrontier tied =
        MakeFrontier(example.graph(), example.table(), options, 1000);
    ASSERT_TRUE(untied.is_complete && tied.is_complete);
    for (const Plan& plan : untied.plans) apart += IsApart(example.graph(), plan);
    for (const Plan& plan : tied.plans) ASSERT_FALSE(IsApart(example.graph(), plan));
    // No tied plan beats all untied ones, and some untied plans beat all tied ones.
    const auto least = [](const PlanFrontier& frontier, int64_t limit) {
      int64_t cost = INT64_MAX;
      for (size_t i = 0; i < frontier.plans.size(); ++i) {
        if (frontier.tile_bytes[i] <= limit)
          cost = std::min(cost, frontier.plans[i].cost());
      }
      return cost;
    };
    for (const PlanFrontier* frontier : {&untied, &tied}) {
      for (int64_t limit : frontier->tile_bytes) {
        ASSERT_LE(least(untied, limit), least(tied, limit)) << "seed " << seed;
        cheaper += least(untied, limit) < least(tied, limit);
      }
    }
  }
  EXPECT_GE(apart, 10);
  EXPECT_GE(cheaper, 10);
}

TEST(UpdateTies, StagesCutStatesThenGradientsThenParameters) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 4}, "data");
  const NodeEntry w = example.Variable("w", {4, 4}, "parameter");
  const NodeEntry y = example.MatMul("y", x, w);
  example.Head(y, "output");
  const NodeEntry g = example.MatMul("g", x, y, true, false);
  example.Head(g, "gradient:w");
  const NodeEntry state = example.Variable("w:state1", {4, 4}, "state:w");
  const NodeEntry update = example.Elementwise("new_w", {w, g, state}, "update");
  example.Head(update, "update:w");
  const Graph& graph = example.graph();
  const std::vector<int> cut = {0, 0};
  const std::vector<int> whole = {kReplicated, kReplicated};
  PlanOptions options = OptionsOf({2, 2});
  options.allow_replication = false;
  const int64_t bytes = 4 * 4 * 4;
  struct Stage {
    const char* mode;
    std::vector<int> w, gradient, state;
    int64_t bytes;
  };
  // Reducing a gradient to its pieces moves 3 times its bytes, gathering a tensor too.
  for (const Stage& stage : {Stage{"data-parallel", whole, whole, whole, 6 * bytes},
                             Stage{"zero-1", whole, whole, cut, 9 * bytes},
                             Stage{"zero-2", whole, cut, cut, 6 * bytes},
                             Stage{"zero-3", cut, cut, cut, 6 * bytes}}) {
    options.mode = stage.mode;
    const Plan plan = MakePlan(graph, example.table(), options);
    EXPECT_EQ(CutsOf(graph, plan, "w"), stage.w) << stage.mode;
    EXPECT_EQ(plan.tensor_cuts[graph.entry_id(g)], stage.gradient) << stage.mode;
    EXPECT_EQ(CutsOf(graph, plan, "w:state1"), stage.state) << stage.mode;
    EXPECT_EQ(plan.tensor_cuts[graph.entry_id(update)], stage.w) << stage.mode;
    EXPECT_EQ(plan.op_cuts[update.node], stage.state) << stage.mode;
    EXPECT_EQ(plan.total_bytes(), stage.bytes) << stage.mode;
    EXPECT_EQ(Recount(graph, example.table(), plan), stage.bytes) << stage.mode;
  }
}

TEST(UpdateTies, TiedUpdatesRefuseTheModesThatCutThemApart) {
  ExampleGraph example = Mlp(8, 8, 2);
  PlanOptions options;
  options.workers = 2;
  options.tie_updates = true;
  for (const char* mode : {"zero-1", "zero-2"}) {
    options.mode = mode;
    try {
      MakePlan(example.graph(), example.table(), options);
      FAIL() << mode;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("zero-3"), std::string::npos);
    }
  }
  options.mode = "zero-3";
  EXPECT_NO_THROW(MakePlan(example.graph(), example.table(), options));
}

}  // namespace
}  // namespace tofu
