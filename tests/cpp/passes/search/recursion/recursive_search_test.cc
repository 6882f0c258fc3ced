#include "passes/search/recursion/recursive_search.h"

#include <gtest/gtest.h>

#include "graph/box.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

// A graph with its classes and options that leave everything free.
struct Problem {
  Problem(ExampleGraph from, const std::vector<int>& parts)
      : example(std::move(from)),
        graph(example.graph()),
        coarse(Coalesce(graph, example.table(),
                        GroupForwardBackward(graph, example.table()))) {
    options.parts = parts;
    options.given.tensors.assign(coarse.tensors.size(), Cuts(parts.size(), kFree));
    options.given.operators.assign(coarse.operators.size(), Cuts(parts.size(), kFree));
  }

  Plan Search(Method method) {
    options.method = method;
    return SearchRecursively(graph, example.table(), coarse, options);
  }
  int64_t Recounted(const Plan& plan) const {
    return Recount(graph, example.table(), plan);
  }

  ExampleGraph example;
  const Graph graph;
  const CoarseGraph coarse;
  RecursiveOptions options;
};

TEST(RecursiveSearch, EveryMethodCostsWhatItsPlanSays) {
  Problem problem(Mlp(24, 12, 2), {3, 2});
  for (Method method :
       {Method::kRecursion, Method::kImproved, Method::kJoint, Method::kGreedy}) {
    const Plan plan = problem.Search(method);
    EXPECT_EQ(plan.parts, (std::vector<int>{3, 2}));
    EXPECT_EQ(plan.total_bytes(), problem.Recounted(plan));
    int64_t by_nodes = 0;
    for (int64_t bytes : plan.node_bytes) by_nodes += bytes;
    EXPECT_EQ(by_nodes, plan.total_bytes());
    EXPECT_LE(plan.lower_bound_bytes, plan.total_bytes());
  }
}

TEST(RecursiveSearch, TheFirstStepsBytesAreThoseOfAPlanThatEndsThere) {
  Problem problem(Mlp(24, 12, 2), {3, 2});
  const Plan plan = problem.Search(Method::kRecursion);
  Plan first = plan;
  first.parts.pop_back();
  for (auto& cuts : first.tensor_cuts) cuts.resize(1);
  for (auto& cuts : first.op_cuts) cuts.resize(1);
  EXPECT_EQ(plan.step_bytes[0], problem.Recounted(first));
}

TEST(RecursiveSearch, ImprovesOnTheRecursionAndMeetsTheJointOptimum) {
  Problem problem(OneLayer(64, 64, 64, true), {2, 2});
  const int64_t recursion = problem.Search(Method::kRecursion).total_bytes();
  const Plan improved = problem.Search(Method::kImproved);
  const Plan joint = problem.Search(Method::kJoint);
  EXPECT_LT(improved.total_bytes(), recursion);
  EXPECT_EQ(improved.total_bytes(), joint.total_bytes());
  EXPECT_EQ(joint.status, PlanStatus::kOptimal);
  EXPECT_EQ(improved.status, PlanStatus::kOptimal);
}

TEST(RecursiveSearch, WhatIsGivenStaysInEveryMethod) {
  Problem problem(Mlp(24, 12, 2), {2, 2});
  problem.options.given.tensors[0] = {1, 0};
  problem.options.given.tensors[1] = {kReplicated, kFree};
  for (Method method :
       {Method::kRecursion, Method::kImproved, Method::kJoint, Method::kGreedy}) {
    const Plan plan = problem.Search(method);
    EXPECT_EQ(Cuts(plan.tensor_cuts[problem.coarse.tensors[0].entries[0]]), (Cuts{1, 0}));
    EXPECT_EQ(plan.tensor_cuts[problem.coarse.tensors[1].entries[0]][0], kReplicated);
  }
}

// The batch divides by 2 only once, so it matters which step comes first.
TEST(RecursiveSearch, PartsOfStepsAreReorderedOnlyWhenTheyMayBe) {
  Problem problem(Mlp(4096, 9, 1), {3, 2});
  const Plan fixed = problem.Search(Method::kImproved);
  EXPECT_EQ(fixed.parts, (std::vector<int>{3, 2}));
  problem.options.may_reorder = true;
  const Plan free = problem.Search(Method::kImproved);
  EXPECT_LE(free.total_bytes(), fixed.total_bytes());
  EXPECT_EQ(free.total_bytes(), problem.Recounted(free));
  problem.options.given.tensors[0][0] = 1;
  EXPECT_EQ(problem.Search(Method::kImproved).parts, (std::vector<int>{3, 2}))
      << "a decision is given for the first step, of three parts";
}

// Steps of equal parts with different given cuts keep their places, too: so many steps
// are not decided jointly, but improved one by one.
TEST(RecursiveSearch, StepsThatAreGivenDifferentCutsDoNotChangePlaces) {
  Problem problem(Mlp(4096, 9 * 64, 1), {2, 2, 2, 2, 2, 2});
  for (const Cuts& given : {Cuts{0, 1, 0, 1, 0, 1}, Cuts{1, 0, 1, 0, 1, 0}}) {
    for (size_t c = 0; c < problem.coarse.tensors.size(); ++c) {
      if (problem.coarse.tensors[c].shape.size() < 2) continue;
      problem.options.given.tensors.assign(problem.coarse.tensors.size(), Cuts(6, kFree));
      problem.options.given.tensors[c] = given;
      const Plan plan = problem.Search(Method::kImproved);
      EXPECT_EQ(Cuts(plan.tensor_cuts[problem.coarse.tensors[c].entries[0]]), given);
      EXPECT_EQ(plan.total_bytes(), problem.Recounted(plan));
    }
  }
}

// Steps of unequal parts leave tiles elsewhere when they trade places: the batch does not
// divide by 3. A quick search does not decide so many steps jointly.
TEST(RecursiveSearch, OnlyStepsOfEqualPartsChangePlaces) {
  Problem problem(Mlp(4096, 9 * 64, 1), {2, 2, 2, 2, 2, 2, 2, 2, 3});
  problem.options.is_quick = true;
  const Plan plan = problem.Search(Method::kImproved);
  EXPECT_EQ(plan.total_bytes(), problem.Recounted(plan));
  EXPECT_LT(plan.lower_bound_bytes, plan.total_bytes()) << "orders were tried";
}

TEST(RecursiveSearch, ManyStepsAreProvenByTheirProfiles) {
  Problem problem(Mlp(9 * 4096, 9 * 64, 1), {2, 2, 2, 2, 2, 3});
  const Plan plan = problem.Search(Method::kImproved);
  EXPECT_EQ(plan.total_bytes(), problem.Recounted(plan));
  EXPECT_EQ(plan.status, PlanStatus::kOptimal);
}

TEST(RecursiveSearch, WhatIsNoCheaperDoesNotTakeThePlaceOfTheRecursionsPlan) {
  int compared = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    Problem problem(RandomGraph(seed, 5), {2, 2});
    const Plan recursion = problem.Search(Method::kRecursion);
    const Plan improved = problem.Search(Method::kImproved);
    if (improved.total_bytes() < recursion.total_bytes()) continue;
    ++compared;
    EXPECT_EQ(improved.tensor_cuts, recursion.tensor_cuts) << "seed " << seed;
    EXPECT_EQ(improved.op_cuts, recursion.op_cuts) << "seed " << seed;
  }
  EXPECT_GT(compared, 30);
}

// Every dimension divides by 2 once, so the second step has no choice left and is an
// optimum for any first step.
TEST(RecursiveSearch, OneStepThatIsNoOptimumMakesThePlanFeasible) {
  Problem problem(Mlp(6, 10, 3), {2, 2});
  EXPECT_EQ(problem.Search(Method::kRecursion).status, PlanStatus::kStepsOptimal);
  problem.options.max_table = 2;
  EXPECT_EQ(problem.Search(Method::kRecursion).status, PlanStatus::kFeasible);
}

TEST(RecursiveSearch, PastTheDeadlineThePlanIsValidAndItsStatusModest) {
  Problem problem(Mlp(24, 12, 3), {2, 2});
  problem.options.deadline = Deadline::min();
  const Plan plan = problem.Search(Method::kImproved);
  EXPECT_EQ(plan.total_bytes(), problem.Recounted(plan));
  EXPECT_EQ(plan.status, PlanStatus::kFeasible);
}

TEST(RecursiveSearch, ReportsItsSearches) {
  Problem problem(OneLayer(64, 64, 64, true), {2, 2});
  std::vector<std::string> names;
  problem.options.on_search = [&](const std::string& name, const std::string& text) {
    EXPECT_FALSE(text.empty());
    names.push_back(name);
  };
  problem.Search(Method::kImproved);
  EXPECT_EQ(names,
            (std::vector<std::string>{"search step 1", "search step 2", "improve"}));
  names.clear();
  problem.Search(Method::kJoint);
  EXPECT_EQ(names, std::vector<std::string>{"search all steps"});
}

}  // namespace
}  // namespace tofu
