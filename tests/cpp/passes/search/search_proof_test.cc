// Compares the search with solvers and counters that share no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "passes/search/plan_for.h"
#include "passes/search/step_problem.h"
#include "support/brute_force.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr size_t kMaxTensors = 10;
constexpr int kGraphs = 1000;
constexpr size_t kMaxPlans = 300;
const CoalesceOptions kNothingMerged = {false, false};

int64_t BruteForce(ExampleGraph* example, const std::vector<int>& parts, size_t limit,
                   const CoalesceOptions& merged = {}) {
  const Graph& graph = example->graph();
  const CoarseGraph coarse = Coalesce(
      graph, example->table(), GroupForwardBackward(graph, example->table()), merged);
  if (coarse.tensors.size() > kMaxTensors) return -1;
  return BruteForceBytes(graph, example->table(), coarse, {parts, limit});
}

class OneStep : public testing::TestWithParam<int> {};

TEST_P(OneStep, EqualsBruteForceAndRecountOnRandomGraphs) {
  const int workers = GetParam();
  int compared = 0;
  for (unsigned seed = 1; compared < kGraphs && seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    const int64_t expected = BruteForce(&example, {workers}, 40);
    if (expected < 0) continue;
    const Plan plan = PlanFor(&example, workers, "recursion", {workers});
    ++compared;
    ASSERT_EQ(plan.total_bytes(), expected) << WriteGraph(example.graph());
    ASSERT_EQ(plan.lower_bound_bytes, expected);
    ASSERT_EQ(plan.status, PlanStatus::kOptimal);
    ASSERT_EQ(Recount(example.graph(), example.table(), plan), expected);
  }
  EXPECT_EQ(compared, kGraphs);
}

TEST_P(OneStep, EqualsBruteForceWhereTensorsMayStayWhole) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    const Graph& graph = example.graph();
    const CoarseGraph coarse =
        Coalesce(graph, example.table(), GroupForwardBackward(graph, example.table()));
    const int64_t expected = BruteForceBytes(
        graph, example.table(), coarse,
        {{GetParam()}, 100, ReplicableTensors(graph, example.table(), coarse)});
    if (expected < 0) continue;
    ++compared;
    PlanOptions options;
    options.workers = GetParam();
    options.parts = {GetParam()};
    options.mode = "recursion";
    options.allow_replication = true;
    const Plan plan = MakePlan(graph, example.table(), options);
    ASSERT_EQ(plan.total_bytes(), expected) << WriteGraph(graph);
    ASSERT_EQ(Recount(graph, example.table(), plan), expected);
  }
  EXPECT_GE(compared, 100);
}

// The table, in which some operators count as moving elements only.
StrategyTable WithMoves(StrategyTable table) {
  for (size_t r = 0; r < table.rows.size(); r += 2) {
    table.rows[r].light = !table.rows[r].elementwise;
  }
  return table;
}

TEST_P(OneStep, EqualsBruteForceWhereMovesMayStayWhole) {
  int compared = 0;
  int cheaper = 0;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 5));
    const Graph& graph = example.graph();
    const StrategyTable table = WithMoves(example.table());
    const CoarseGraph coarse = Coalesce(graph, table, GroupForwardBackward(graph, table));
    const std::vector<bool> may_be_whole = ReplicableTensors(graph, table, coarse);
    const int64_t expected =
        BruteForceBytes(graph, table, coarse, {{GetParam()}, 100, may_be_whole});
    if (expected < 0) continue;
    ++compared;
    PlanOptions options;
    options.workers = GetParam();
    options.parts = {GetParam()};
    options.mode = "recursion";
    options.allow_replication = true;
    const Plan plan = MakePlan(graph, table, options);
    ASSERT_EQ(plan.total_bytes(), expected) << WriteGraph(graph);
    ASSERT_EQ(Recount(graph, table, plan), expected);
    cheaper += expected < MakePlan(graph, example.table(), options).total_bytes() ? 1 : 0;
  }
  EXPECT_GE(compared, 100);
  EXPECT_GE(cheaper, 1);
}

INSTANTIATE_TEST_SUITE_P(Search, OneStep, testing::Values(2, 3, 4, 6, 8));

// A case of brute force over all steps; every order of the parts has its own plans.
struct Joint {
  int workers;
  std::vector<std::vector<int>> orders;
};

void PrintTo(const Joint& joint, std::ostream* out) {
  *out << joint.workers << " workers";
}

class AllSteps : public testing::TestWithParam<Joint> {
 protected:
  // Relative gaps to the optimum.
  struct Gaps {
    double sum = 0;
    double worst = 0;

    void Add(int64_t bytes, int64_t best) {
      const double gap = bytes == best
                             ? 0.0
                             : static_cast<double>(bytes - best) /
                                   static_cast<double>(std::max(best, int64_t{1}));
      sum += gap;
      worst = std::max(worst, gap);
    }
  };
};

// Checks that the least cost of the first steps is at most that of all steps.
void ExpectFirstStepsBound(ExampleGraph* example, const std::vector<int>& parts,
                           int64_t best) {
  std::vector<int> first;
  int workers = 1;
  int64_t before = 0;
  for (int part : parts) {
    first.push_back(part);
    workers *= part;
    const int64_t bytes = PlanFor(example, workers, "flat", first).total_bytes();
    ASSERT_GE(bytes, before) << WriteGraph(example->graph());
    before = bytes;
  }
  if (best >= 0) {
    ASSERT_EQ(before, best) << WriteGraph(example->graph());
  }
}

// A sum that several workers need whole is reduced in pieces or not; both the bound and
// the plan must know which is cheaper.
TEST_P(AllSteps, EqualBruteForceWhereTensorsMayStayWhole) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 700; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 4));
    const Graph& graph = example.graph();
    const StrategyTable table = seed > 300 ? WithMoves(example.table()) : example.table();
    // The last search releases the element-wise operators, so their tensors may be whole.
    const CoarseGraph coarse =
        Coalesce(graph, table, GroupForwardBackward(graph, table), {false, false, {}});
    for (const std::vector<int>& parts : GetParam().orders) {
      const int64_t best = BruteForceBytes(
          graph, table, coarse, {parts, 300, ReplicableTensors(graph, table, coarse)});
      if (best < 0) continue;
      ++compared;
      PlanOptions options;
      options.workers = GetParam().workers;
      options.parts = parts;
      options.allow_replication = true;
      const Plan plan = MakePlan(graph, table, options);
      ASSERT_EQ(plan.total_bytes(), best) << WriteGraph(graph);
      ASSERT_LE(plan.lower_bound_bytes, best);
    }
  }
  EXPECT_GE(compared, 20);
}

TEST_P(AllSteps, AreWithinAGapOfBruteForceOverJointPlans) {
  int compared = 0;
  Gaps recursion;
  Gaps improved;
  for (unsigned seed = 1; compared < kGraphs && seed <= 8000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 1 + static_cast<int>(seed % 4));
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const std::vector<int>& parts : GetParam().orders) {  // -1: too many plans
      best = std::min(best, BruteForce(&example, parts, kMaxPlans, kNothingMerged));
    }
    if (best < 0) continue;
    ++compared;
    const Plan plan = PlanFor(&example, GetParam().workers, "tofu");
    const Plan greedy = PlanFor(&example, GetParam().workers, "recursion");
    ASSERT_GE(plan.total_bytes(), best) << WriteGraph(example.graph());
    ASSERT_LE(plan.total_bytes(), greedy.total_bytes());
    ASSERT_LE(plan.lower_bound_bytes, plan.total_bytes());
    ASSERT_EQ(Recount(example.graph(), example.table(), plan), plan.total_bytes());
    ASSERT_EQ(Recount(example.graph(), example.table(), greedy), greedy.total_bytes());
    for (const std::vector<int>& parts : GetParam().orders) {
      ExpectFirstStepsBound(&example, parts,
                            BruteForce(&example, parts, kMaxPlans, kNothingMerged));
    }
    recursion.Add(greedy.total_bytes(), best);
    improved.Add(plan.total_bytes(), best);
  }
  std::cout << GetParam().workers << " workers, " << compared
            << " graphs: mean and worst gap of the recursion "
            << recursion.sum / std::max(compared, 1) << ", " << recursion.worst
            << "; improved " << improved.sum / std::max(compared, 1) << ", "
            << improved.worst << std::endl;
  EXPECT_GE(compared, kGraphs);
  EXPECT_EQ(improved.worst, 0.0) << "problems of this size are solved jointly";
  // The recursion cuts into most parts first, which leaves small dimensions no choice.
  EXPECT_LE(recursion.sum / compared, GetParam().orders.size() == 1 ? 0.05 : 1.0);
}

INSTANTIATE_TEST_SUITE_P(Search, AllSteps,
                         testing::Values(Joint{4, {{2, 2}}}, Joint{6, {{3, 2}, {2, 3}}},
                                         Joint{8, {{2, 2, 2}}}));

// Columns suit the readers of x, and rows those of its activation: cutting both alike
// costs bytes.
void AddTornChain(ExampleGraph* example, int64_t columns, int row_readers) {
  const NodeEntry x = example->Variable("x", {4, columns}, "data");
  const NodeEntry w = example->Variable("w", {4, 1}, "data");
  const NodeEntry y = example->Elementwise("y", {x});
  for (int i = 0; i < 4; ++i) {
    const std::string name = "product" + std::to_string(i);
    example->Head(example->MatMul(name, x, w, true), "output");
  }
  for (int i = 0; i < row_readers; ++i) {
    example->Head(example->RowWise("row" + std::to_string(i), {y}), "output");
  }
}

TEST(SearchProof, AChainThatCostsBytesIfItIsCutAlikeIsReleased) {
  for (const std::vector<int>& parts : {std::vector<int>{2}, {2, 2}}) {
    for (const char* mode : {"tofu", "flat"}) {
      ExampleGraph example;
      AddTornChain(&example, 64, 2);
      const int64_t merged = BruteForce(&example, parts, 100000);
      const int64_t best = BruteForce(&example, parts, 100000, kNothingMerged);
      ASSERT_GE(best, 0);
      ASSERT_LT(best, merged);
      const Plan plan = PlanFor(&example, parts.size() == 1 ? 2 : 4, mode);
      EXPECT_EQ(plan.total_bytes(), best);
      EXPECT_EQ(plan.status, PlanStatus::kOptimal);
      EXPECT_EQ(plan.lower_bound_bytes, best);
      EXPECT_EQ(Recount(example.graph(), example.table(), plan), best);
    }
  }
}

// Too many different operators to solve all steps at once.
void AddProducts(ExampleGraph* example) {
  for (int64_t i = 1; i <= 100; ++i) {
    const std::string name = "extra" + std::to_string(i);
    const NodeEntry a = example->Variable(name + "a", {8 * i, 64}, "data");
    const NodeEntry b = example->Variable(name + "b", {64, 8 * (101 - i)}, "data");
    example->Head(example->MatMul(name, example->MatMul(name + "first", a, b),
                                  example->Variable(name + "c", {8 * (101 - i), 8})),
                  "output");
  }
}

TEST(SearchProof, AChainOfALargeGraphIsReleasedAndProven) {
  ExampleGraph chain;
  AddTornChain(&chain, 16, 4);
  ExampleGraph others;
  AddProducts(&others);
  ExampleGraph both;
  AddTornChain(&both, 16, 4);
  AddProducts(&both);
  std::vector<std::string> passes;
  PlanOptions options;
  options.workers = 4;
  const Plan plan =
      MakePlan(both.graph(), both.table(), options,
               [&](const std::string& name, const auto&) { passes.push_back(name); });
  EXPECT_EQ(std::count(passes.begin(), passes.end(), "release"), 1);
  EXPECT_EQ(plan.total_bytes(), PlanFor(&chain, 4, "tofu").total_bytes() +
                                    PlanFor(&others, 4, "tofu").total_bytes());
  EXPECT_EQ(plan.status, PlanStatus::kOptimal);
  EXPECT_EQ(plan.lower_bound_bytes, plan.total_bytes());
  EXPECT_EQ(Recount(both.graph(), both.table(), plan), plan.total_bytes());
}

TEST(SearchProof, ThePlanCostsWhatARecountOfEveryWorkerFinds) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    ExampleGraph example = RandomGraph(seed, 10);
    for (int workers : {2, 3, 4, 6, 8, 12}) {
      const Plan plan = PlanFor(&example, workers, "tofu");
      ASSERT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan))
          << "seed " << seed << ", " << workers
          << " workers: " << WriteGraph(example.graph());
    }
  }
}

TEST(SearchProof, TheCostsOfAThousandWorkersAreThoseOfARecount) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    ExampleGraph example = RandomGraph(seed, 6);
    const Plan plan = PlanFor(&example, 1024, "recursion");
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan))
        << "seed " << seed;
  }
  ExampleGraph example = Mlp(4096, 1024, 2);
  const Plan plan = PlanFor(&example, 1024, "recursion");
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

// Dimensions of which some are cut evenly and others are not.
TEST(SearchProof, NoCutUsesUpADimensionThatALaterStepNeeds) {
  using Case = std::tuple<int64_t, int64_t, int64_t, std::vector<int>>;
  for (const auto& [batch, in, out, ascending] :
       {Case{6, 5, 4, {2, 3}}, Case{3, 4, 5, {2, 3}}, Case{9, 8, 2, {2, 3}},
        Case{5, 2, 6, {2, 2}}, Case{3, 12, 2, {2, 2, 3}}}) {
    ExampleGraph example = OneLayer(batch, in, out, false);
    int64_t best = -1;
    int workers = 1;
    for (const int step : ascending) workers *= step;
    std::vector<int> parts = ascending;
    do {
      const int64_t bytes = BruteForce(&example, parts, 1000000, kNothingMerged);
      ASSERT_GE(bytes, 0);
      best = best < 0 ? bytes : std::min(best, bytes);
    } while (std::next_permutation(parts.begin(), parts.end()));
    const Plan plan = PlanFor(&example, workers, "tofu");
    EXPECT_EQ(plan.total_bytes(), best) << batch << " x " << in << " x " << out;
  }
}

// --- Theorem 1: delta_i <= delta_(i+1).

// The appendix assumes that every dimension divides and that halving a tensor halves the
// bytes fetched of it: no halo, and no dimension that stops dividing.
TEST(Theorem1, HoldsUnderTheAppendixAssumptions) {
  for (int layers = 1; layers <= 4; ++layers) {
    for (int64_t batch : {64, 512, 8192}) {
      for (int64_t width : {64, 256, 1024}) {
        ExampleGraph example = Mlp(batch, width, layers);
        const Plan plan = PlanFor(&example, 16, "recursion");
        EXPECT_TRUE(std::is_sorted(plan.step_bytes.begin(), plan.step_bytes.end()))
            << layers << " layers of " << width << ", batch " << batch;
      }
    }
  }
}

// If tiles must be equal, step 1 cannot cut the batch into 3 parts. It has to cut the
// weights' dimension, which costs more than step 2, which may cut the batch.
TEST(Theorem1, DoesNotHoldWhereADimensionDoesNotDivide) {
  ExampleGraph example = Mlp(4096, 9, 1);
  PlanOptions options;
  options.workers = 6;
  options.mode = "recursion";
  options.equal_tiles = true;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  ASSERT_EQ(plan.parts, (std::vector<int>{3, 2}));
  EXPECT_GT(plan.step_bytes[0], plan.step_bytes[1]);
}

// Optimality does not hold either: if two steps cut one dimension, tiles are nested
// halves, and another first step makes the second one cheaper by more than it costs.
TEST(Theorem1, TheRecursionIsNotOptimalWhereCutsDoNotCommute) {
  ExampleGraph example = OneLayer(64, 64, 64, true);
  const int64_t best = BruteForce(&example, {2, 2}, 100000);
  ASSERT_GE(best, 0);
  EXPECT_GT(PlanFor(&example, 4, "recursion").total_bytes(), best);
  EXPECT_EQ(PlanFor(&example, 4, "tofu").total_bytes(), best);
}

// --- Bounds.

TEST(SearchBound, TheDefaultPlanIsTheProvenOptimumOfAllSteps) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    ExampleGraph example = RandomGraph(seed, 12);
    const Plan plan = PlanFor(&example, 16, "tofu");
    ASSERT_EQ(plan.total_bytes(), PlanFor(&example, 16, "flat").total_bytes())
        << "seed " << seed;
    ASSERT_EQ(plan.lower_bound_bytes, plan.total_bytes()) << "seed " << seed;
    ASSERT_EQ(plan.status, PlanStatus::kOptimal) << "seed " << seed;
    ASSERT_EQ(Recount(example.graph(), example.table(), plan), plan.total_bytes());
  }
}

TEST(SearchBound, ThatEveryStepIsAnOptimumDoesNotMakeThePlanOne) {
  ExampleGraph example = Mlp(64, 64, 1);
  const Plan plan = PlanFor(&example, 4, "recursion");
  ASSERT_LT(plan.lower_bound_bytes, plan.total_bytes());
  EXPECT_EQ(plan.status, PlanStatus::kStepsOptimal);
  EXPECT_EQ(PlanFor(&example, 4, "tofu").status, PlanStatus::kOptimal);
}

// The windows of two outputs lie four columns apart. The group that makes both needs all
// columns between them, its parts one column each: the first step costs more than both.
TEST(SearchBound, HoldsWhereOperatorsSkipElements) {
  ExampleGraph example = OneLayer(64, 64, 64, true);
  const NodeEntry x = example.Variable("x", {1 << 16, 15}, "data");
  example.Head(example.Window("y", x, /*width=*/1, /*stride=*/4), "output");
  StrategyTable table = example.table();
  table.rows.back().splittable = {1};  // the columns of the output
  PlanOptions options;
  options.workers = 4;
  options.equal_tiles = true;
  options.mode = "flat";
  const int64_t best = MakePlan(example.graph(), table, options).total_bytes();
  options.mode = "recursion";
  const Plan plan = MakePlan(example.graph(), table, options);
  ASSERT_GT(plan.step_bytes[0], best) << "the first step bounds nothing";
  ASSERT_GT(plan.total_bytes(), best);
  EXPECT_LE(plan.lower_bound_bytes, best);
  EXPECT_EQ(plan.status, PlanStatus::kStepsOptimal);
  options.mode = "tofu";
  const Plan joint = MakePlan(example.graph(), table, options);
  EXPECT_EQ(joint.total_bytes(), best);
  EXPECT_EQ(joint.lower_bound_bytes, best);
}

// --- Limits.

TEST(SearchLimits, WithoutTimeItStillReturnsAValidPlanAndABound) {
  ExampleGraph example = Mlp(64, 512, 40);
  PlanOptions options;
  options.workers = 8;
  options.time_limit_s = 1e-9;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  EXPECT_EQ(plan.status, PlanStatus::kFeasible);
  EXPECT_LE(plan.lower_bound_bytes, plan.total_bytes());
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
  options.time_limit_s = 60;
  EXPECT_LE(MakePlan(example.graph(), example.table(), options).total_bytes(),
            plan.total_bytes());
}

TEST(SearchLimits, AHundredthOfASecondForALargeGraphGivesAValidPlanAndABound) {
  ExampleGraph example = Residual(64, 512, 2500);
  ASSERT_GE(example.graph().nodes.size(), 10000u);
  PlanOptions options;
  options.workers = 8;
  options.time_limit_s = 0.01;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  EXPECT_EQ(plan.parts, (std::vector<int>{2, 2, 2}));
  EXPECT_LE(plan.lower_bound_bytes, plan.total_bytes());
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

TEST(SearchLimits, AStepsProblemIsWhatTheStepSolved) {
  ExampleGraph example = Mlp(96, 48, 3);
  const Plan plan = PlanFor(&example, 8, "recursion");
  int64_t bytes = 0;
  for (int step = 0; step < 3; ++step) {
    bytes += plan.step_bytes[step];
    const ChoiceProblem problem =
        StepProblem(example.graph(), example.table(), plan, step);
    EXPECT_EQ(Eliminate(problem, {}).cost, bytes) << "step " << step;
  }
}

}  // namespace
}  // namespace tofu
