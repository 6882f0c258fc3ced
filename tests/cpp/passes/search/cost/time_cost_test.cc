#include "passes/search/cost/time_cost.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "graph/head_roles.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/predict.h"
#include "passes/search/make_plan.h"
#include "passes/search/recursion/recursive_search.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/recount.h"
#include "support/recount_time.h"

namespace tofu {
namespace {

CoarseGraph ClassesOfGraph(ExampleGraph* example) {
  return Coalesce(example->graph(), example->table(),
                  GroupForwardBackward(example->graph(), example->table()));
}

struct Case {
  int workers;
  bool is_gpu;
  bool replicates;
};

class TimePlans : public testing::TestWithParam<Case> {};

// The plan's predicted time equals a recount's, and by brute force no plan takes less.
TEST_P(TimePlans, AreWhatBruteForceFinds) {
  const auto [workers, is_gpu, replicates] = GetParam();
  const std::vector<int> parts = PrimeFactors(workers);
  int compared = 0;
  for (unsigned seed = 1; seed <= 400 && compared < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 3));
    const Graph& graph = example.graph();
    const TimeModel model = ModelOf(graph, TwoHosts(workers, is_gpu));
    const CoarseGraph coarse = ClassesOfGraph(&example);
    if (coarse.tensors.size() > 8) continue;
    const TimeRecount recount(graph, example.table(), model.machine, model.works,
                              Parameters(graph));
    const NodeCost cost = [&](const Plan& plan, int node) {
      return recount.OfNode(plan, node).ns;
    };
    const std::vector<bool> may_be_whole(replicates ? coarse.tensors.size() : 0, true);
    const int64_t best = BruteForceCost(graph, example.table(), coarse,
                                        {parts, 60, may_be_whole, replicates}, cost);
    if (best < 0) continue;
    ++compared;
    PlanOptions options;
    options.workers = workers;
    options.objective.machine = &model;
    options.allow_replication = replicates;
    const Plan plan = MakePlan(graph, example.table(), options);
    const RecountedTime recounted = recount.OfPlan(plan);
    ASSERT_TRUE(plan.objective);
    ASSERT_EQ(plan.objective->name, "time");
    // Each term may be rounded differently.
    const int64_t rounding = 4 * graph.num_nodes();
    ASSERT_LE(std::abs(plan.cost() - recounted.ns), rounding) << WriteGraph(graph);
    ASSERT_LE(std::abs(plan.cost() - best), rounding) << WriteGraph(graph);
    ASSERT_LE(plan.lower_bound(), best + rounding);
    ASSERT_EQ(plan.predicted->links[1].bytes, recounted.bytes[0]);
    ASSERT_EQ(plan.total_bytes(), Recount(graph, example.table(), plan));
  }
  EXPECT_GE(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Search, TimePlans,
                         testing::Values(Case{2, false, false}, Case{4, false, false},
                                         Case{4, true, false}, Case{2, true, true},
                                         Case{4, false, true}, Case{4, true, true}));

TEST(TimeCost, SplitsBytesByTheLinkThatTheyCross) {
  ExampleGraph example = Mlp(64, 32, 2);
  const TimeModel model = ModelOf(example.graph(), TwoHosts(4, true));
  PlanOptions options;
  options.workers = 4;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const PredictedTime time =
      PredictTime(example.graph(), example.table(), plan, model).time;
  ASSERT_EQ(time.links.size(), 2u);
  EXPECT_EQ(time.links[0].bytes + time.links[1].bytes, plan.total_bytes());
  EXPECT_EQ(time.step_ns,
            time.compute_ns + time.host_ns + time.fetch_ns - time.hidden_ns);
  EXPECT_EQ(time.lower_bound_ns, -1);
}

bool ReducesInPieces(ExampleGraph* example, const Plan& plan) {
  const Graph& graph = example->graph();
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      if (graph.nodes[node].is_variable()) continue;
      if (RecountOutput(graph, example->table(), plan, node, i).in_pieces) return true;
    }
  }
  return false;
}

// Returns the number of routes.
int ExpectRecounted(ExampleGraph* example, const Plan& plan, const Machine& machine) {
  const Graph& graph = example->graph();
  const TimeModel model = ModelOf(graph, machine);
  const Prediction prediction = PredictTime(graph, example->table(), plan, model);
  const PredictedTime& time = prediction.time;
  const RecountedTime recounted =
      TimeRecount(graph, example->table(), machine, model.works, Parameters(graph))
          .OfPlan(plan);
  EXPECT_LE(std::abs(time.step_ns - recounted.ns), 4 * graph.num_nodes());
  // Three groups of two workers: each step has a group on both hosts.
  const int64_t outer = plan.workers() == 6 ? plan.total_bytes() : recounted.bytes[0];
  EXPECT_EQ(time.links[1].bytes, outer);
  EXPECT_EQ(time.links[0].bytes + time.links[1].bytes,
            plan.total_bytes() + recounted.added_bytes);
  EXPECT_EQ(time.relayed_bytes, recounted.added_bytes);
  EXPECT_EQ(static_cast<int>(prediction.routes.size()), recounted.routes);
  EXPECT_EQ(static_cast<int>(prediction.output_routes.size()), recounted.output_routes);
  return recounted.routes;
}

// The gradient of a whole weight is two fetches, over the links of all steps.
TEST(TimeCost, SumsThatAllNeedAreCountedInPieces) {
  for (int workers : {4, 6, 8}) {
    int in_pieces = 0;
    int routes = 0;
    for (unsigned seed = 0; seed <= 30; ++seed) {
      SCOPED_TRACE(std::to_string(workers) + " workers, seed " + std::to_string(seed));
      ExampleGraph example = seed == 0 ? Mlp(48, 24, 2) : RandomGraph(seed, 4);
      PlanOptions options;
      options.workers = workers;
      options.mode = "data-parallel";
      const Plan plan = MakePlan(example.graph(), example.table(), options);
      in_pieces += ReducesInPieces(&example, plan) ? 1 : 0;
      routes += ExpectRecounted(&example, plan, TwoHosts(workers, seed % 2 == 0));
    }
    EXPECT_GE(in_pieces, 1);
    EXPECT_EQ(routes > 0, workers != 6);
  }
}

// The bytes of each of three levels of links equal a recount's, over routes, too.
TEST(TimeCost, BytesOfEachOfThreeLevelsAreRecounted) {
  int routes = 0;
  int output_routes = 0;
  int of_three_moves = 0;
  int of_partial_sums_twice = 0;
  for (const char* mode : {"data-parallel", "equalchop", "tofu"}) {
    for (unsigned seed = 0; seed <= 15; ++seed) {
      SCOPED_TRACE(std::string(mode) + ", seed " + std::to_string(seed));
      ExampleGraph example = seed == 0 ? Mlp(48, 24, 2) : RandomGraph(seed, 4);
      const Graph& graph = example.graph();
      PlanOptions options;
      options.workers = 8;
      options.mode = mode;
      const Plan plan = MakePlan(graph, example.table(), options);
      const TimeModel model = ModelOf(graph, ThreeLevels(seed % 2 == 0));
      const Prediction prediction = PredictTime(graph, example.table(), plan, model);
      const RecountedTime recounted = TimeRecount(graph, example.table(), model.machine,
                                                  model.works, Parameters(graph))
                                          .OfPlan(plan);
      ASSERT_LE(std::abs(prediction.time.step_ns - recounted.ns), 4 * graph.num_nodes());
      for (size_t step = 0; step < 3; ++step) {
        ASSERT_EQ(prediction.time.links[2 - step].bytes, recounted.bytes[step]);
      }
      ASSERT_EQ(prediction.time.relayed_bytes, recounted.added_bytes);
      ASSERT_EQ(static_cast<int>(prediction.routes.size()), recounted.routes);
      ASSERT_EQ(static_cast<int>(prediction.output_routes.size()),
                recounted.output_routes);
      routes += recounted.routes;
      output_routes += recounted.output_routes;
      for (const Route& route : prediction.routes) {
        of_three_moves += route.stops.size() > 1 ? 1 : 0;
      }
      for (const OutputRoute& route : prediction.output_routes) {
        of_partial_sums_twice += route.partial.size() > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(routes, 10);
  EXPECT_GT(output_routes, 10);
  EXPECT_GT(of_three_moves, 0);
  EXPECT_GT(of_partial_sums_twice, 0);
}

// Gradients of S bytes move 2 (k - 1) S over all links: directly k S of these over the
// outer link, which divides the workers in two; but 2 S if each host sends its sums.
TEST(TimeCost, DataParallelismOverTwoHosts) {
  constexpr int64_t kWidth = 24;
  constexpr int64_t kBytes = (kWidth * kWidth + kWidth) * 4 * 2;  // of two layers
  ExampleGraph example = Mlp(96, kWidth, 2);
  PlanOptions options;
  options.workers = 8;
  options.mode = "data-parallel";
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const TimeModel model = ModelOf(example.graph(), TwoHosts(8, false));
  const Prediction prediction =
      PredictTime(example.graph(), example.table(), plan, model);
  // Each worker needs the other host's sum of a quarter.
  EXPECT_EQ(prediction.time.links[1].bytes, 8 * kBytes / 4);
  // It adds up 4 terms of it before, and gathers the other 3 quarters after that.
  EXPECT_EQ(prediction.time.links[0].bytes, 8 * (3 + 3) * kBytes / 4);
  EXPECT_EQ(prediction.time.relayed_bytes, 0);
  ASSERT_EQ(prediction.output_routes.size(), 4u);
  for (const OutputRoute& route : prediction.output_routes) {
    EXPECT_EQ(route.partial.size(), 1u);
    EXPECT_EQ(route.stops, route.partial);
  }
}

// Four workers share a sum of two elements: directly they fetch 16 elements; over hosts,
// the least of any way.
TEST(TimeCost, SumsThatDoNotDivideByAllMoveLessOverHosts) {
  ExampleGraph example;
  example.Head(example.ReduceRows("y", example.Variable("x", {8, 2}), Reducer::kSum),
               "output");
  const Graph& graph = example.graph();
  Plan plan;
  plan.parts = {2, 2};
  plan.tensor_cuts = {{0, 0}, {kReplicated, kReplicated}};
  plan.op_cuts = {{kReplicated, kReplicated}, {0, 0}};
  Machine machine = TwoHosts(4, false);
  machine.device.launch_s = machine.host.push_s = 0;
  const Prediction prediction =
      PredictTime(graph, example.table(), plan, ModelOf(graph, machine));
  ASSERT_EQ(prediction.output_routes.size(), 1u);
  const OperatorRegions regions(graph, example.table(), 1, {0, 0}, plan.parts);
  EXPECT_EQ(regions.LeastSumElements(0, 4 * 2, 0b11), 12);
  EXPECT_EQ(prediction.time.links[0].bytes + prediction.time.links[1].bytes, 12 * 4);
  EXPECT_EQ(prediction.time.relayed_bytes, (12 - 16) * 4);
}

// Later steps cross faster links, so a plan for time sends less over the slow one.
TEST(TimeCost, OuterStepsAvoidTheSlowLink) {
  ExampleGraph example = Mlp(64, 64, 2);
  Machine machine = TwoHosts(4, false);
  machine.links[1].port_bytes_per_s = 0.01;
  const TimeModel model = ModelOf(example.graph(), machine);
  PlanOptions options;
  options.workers = 4;
  const Plan bytes = MakePlan(example.graph(), example.table(), options);
  options.objective.machine = &model;
  const Plan time = MakePlan(example.graph(), example.table(), options);
  const PredictedTime before =
      PredictTime(example.graph(), example.table(), bytes, model).time;
  EXPECT_LE(time.predicted->links[1].bytes, before.links[1].bytes);
  EXPECT_LE(time.predicted->step_ns, before.step_ns);
  EXPECT_GE(time.total_bytes(), bytes.total_bytes());
}

// If pushing and fetching cost far more than computing, all tensors and operators stay
// whole.
TEST(TimeCost, SmallOperatorsAreComputedByAllWhereThatIsFaster) {
  ExampleGraph example = Mlp(4, 4, 2);
  Machine machine = TwoHosts(4, false);
  machine.links[0].latency_s = machine.links[1].latency_s = 1e6;
  const TimeModel model = ModelOf(example.graph(), machine);
  PlanOptions options;
  options.workers = 4;
  options.objective.machine = &model;
  options.allow_replication = true;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  EXPECT_EQ(plan.total_bytes(), 0);
  options.allow_replication = false;
  const Plan split = MakePlan(example.graph(), example.table(), options);
  EXPECT_GT(split.cost(), plan.cost());
}

}  // namespace
}  // namespace tofu
