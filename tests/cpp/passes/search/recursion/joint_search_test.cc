#include "passes/search/recursion/joint_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "passes/coarsen/group.h"
#include "passes/search/make_plan.h"
#include "passes/search/recursion/recursive_search.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

struct SearchedGraph {
  SearchedGraph(ExampleGraph from, const std::vector<int>& parts)
      : example(std::move(from)),
        graph(example.graph()),
        coarse(Coalesce(graph, example.table(),
                        GroupForwardBackward(graph, example.table()))),
        searcher(graph, example.table(), coarse, parts, {}) {
    given.tensors.assign(coarse.tensors.size(), Cuts(parts.size(), kFree));
    given.operators.assign(coarse.operators.size(), Cuts(parts.size(), kFree));
  }

  // The bound with the first steps ordered, by elimination.
  int64_t Least(size_t ordered) {
    SearchOptions options;
    options.ordered = ordered;
    return searcher.Search(given, options).cost;
  }

  ExampleGraph example;
  const Graph graph;
  const CoarseGraph coarse;
  PartitionSearcher searcher;
  ClassCuts given;
};

TEST(JointSearch, PatternsBoundThePlansAndMoreOrderedOnesBoundThemBetter) {
  int below = 0;
  int between = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    for (const std::vector<int>& parts :
         {std::vector<int>{2, 2, 2}, {3, 2, 2}, {2, 3, 2}}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      SearchedGraph problem(RandomGraph(seed, 6), parts);
      const int64_t none = problem.Least(0);
      const int64_t one = problem.Least(1);
      const int64_t all = problem.Least(3);
      ASSERT_LE(none, one) << WriteGraph(problem.graph);
      ASSERT_LE(one, problem.Least(2)) << WriteGraph(problem.graph);
      ASSERT_LE(problem.Least(2), all) << WriteGraph(problem.graph);
      below += none < all;
      between += none < one || one < all;
    }
  }
  EXPECT_GT(below, 5) << "orders matter somewhere";
  EXPECT_GT(between, 5);
}

// Cuts replace the profiles that the bound's optimum chose, until the optimum is a plan.
TEST(JointSearch, ProfilesToldApartBoundThePlansBetterUntilTheyAreOne) {
  int rounds = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) {
    for (const std::vector<int>& parts :
         {std::vector<int>{2, 2, 2}, {3, 2, 2}, {2, 3, 2}, {2, 2, 2, 2}}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      SearchedGraph problem(RandomGraph(seed, 6), parts);
      const int64_t all = problem.Least(parts.size());
      ExactProfiles exact;
      SearchOptions options;
      options.ordered = 0;
      SearchResult result = problem.searcher.Search(problem.given, options);
      options.exact = &exact;
      int64_t before = result.cost;
      while (problem.searcher.TellApart(result.cuts, &exact)) {
        result = problem.searcher.Search(problem.given, options);
        ASSERT_LE(before, result.cost) << WriteGraph(problem.graph);
        ASSERT_LE(result.cost, all) << WriteGraph(problem.graph);
        before = result.cost;
        ++rounds;
      }
      ASSERT_EQ(result.cost, all) << WriteGraph(problem.graph);
    }
  }
  EXPECT_GT(rounds, 100);
}

TEST(JointSearch, FindsAndProvesTheOptimum) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SearchedGraph problem(RandomGraph(seed, 8), {2, 2, 2});
    JointOptions options;
    options.best_cost = int64_t{1} << 60;
    const JointResult result = SearchJointly(problem.given, options, &problem.searcher);
    ASSERT_TRUE(result.found);
    EXPECT_EQ(result.found->cost, problem.Least(3));
    EXPECT_EQ(result.lower_bound, problem.Least(3));
  }
}

TEST(JointSearch, APlanThatIsBestIsProvenSoByTheProfilesItLeaves) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SearchedGraph problem(RandomGraph(seed, 8), {2, 2, 2});
    const int64_t best = problem.Least(3);
    SearchOptions options;
    options.ordered = 0;
    // The profiles that plans of at most `best` bytes may have include the optimum's.
    const ClassProfiles cheap =
        problem.searcher.WantedProfiles(problem.given, options, best + 1, 20);
    options.ordered = 3;
    options.profiles = &cheap;
    EXPECT_EQ(problem.searcher.Search(problem.given, options).cost, best);
  }
}

TEST(JointSearch, EqualGraphsGiveEqualPlans) {
  ExampleGraph example = RandomGraph(7, 30);
  PlanOptions options;
  options.workers = 16;
  const Plan first = MakePlan(example.graph(), example.table(), options);
  const Plan second = MakePlan(example.graph(), example.table(), options);
  EXPECT_EQ(first.tensor_cuts, second.tensor_cuts);
  EXPECT_EQ(first.op_cuts, second.op_cuts);
  EXPECT_EQ(first.lower_bound_bytes, second.lower_bound_bytes);
}

// The optimum over two steps of two parts if timesteps are cut alike.
int64_t MergedBytes(ExampleGraph example) {
  const Graph graph = example.graph();
  const StrategyTable table = example.table();
  const CoarseGraph coarse = Coalesce(graph, table, GroupForwardBackward(graph, table));
  RecursiveOptions options;
  options.parts = {2, 2};
  options.method = Method::kJoint;
  options.given.tensors.assign(coarse.tensors.size(), Cuts(2, kFree));
  options.given.operators.assign(coarse.operators.size(), Cuts(2, kFree));
  return SearchRecursively(graph, table, coarse, options).total_bytes();
}

// The timesteps share weights, but not cuts.
TEST(JointSearch, ReleasedTimestepsAreCutAsIsBest) {
  int cheaper = 0;
  for (const auto& [batch, width] : {std::pair<int64_t, int64_t>{8, 64}, {32, 32}}) {
    ExampleGraph example = UnrolledRnn(batch, width, 4);
    PlanOptions options;
    options.workers = 4;
    std::vector<std::string> passes;
    const Plan plan = MakePlan(
        example.graph(), example.table(), options,
        [&](const std::string& name, const std::string&) { passes.push_back(name); });
    EXPECT_EQ(std::count(passes.begin(), passes.end(), "release"), 1);
    options.mode = "flat";
    const Plan flat = MakePlan(example.graph(), example.table(), options);
    EXPECT_EQ(flat.total_bytes(), plan.total_bytes());
    EXPECT_EQ(flat.status, PlanStatus::kOptimal);
    options.coarsen = false;
    const Plan best = MakePlan(example.graph(), example.table(), options);
    EXPECT_EQ(plan.total_bytes(), best.total_bytes());
    EXPECT_EQ(plan.status, PlanStatus::kOptimal);
    EXPECT_EQ(Recount(example.graph(), example.table(), plan), plan.total_bytes());
    cheaper += plan.total_bytes() < MergedBytes(example);
  }
  EXPECT_GT(cheaper, 0);
}

}  // namespace
}  // namespace tofu
