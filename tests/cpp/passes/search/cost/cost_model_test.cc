#include "passes/search/cost/cost_model.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"

namespace tofu {
namespace {

// The plan's cost, which the search has minimised, is the sum over its classes.
TEST(CostModel, CostsOfClassesAddUpToThePlans) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 6);
    const Graph& graph = example.graph();
    const TimeModel machine = ModelOf(graph, TwoHosts(4, true));
    for (const bool is_time : {false, true}) {
      PlanOptions options;
      options.workers = 4;
      if (is_time) options.objective.machine = &machine;
      const Plan plan = MakePlan(graph, example.table(), options);
      const CoarseGraph coarse = ClassesOf(graph, example.table(), plan);
      const auto model =
          MakeCostModel(options.objective, graph, example.table(), coarse, plan.parts);
      const ClassCuts cuts = ClassCutsOf(graph, coarse, plan);
      int64_t sum = 0;
      for (int p = 0; p < static_cast<int>(coarse.operators.size()); ++p) {
        sum += model->ClassCost(cuts, p);
      }
      EXPECT_EQ(sum, plan.cost());
      EXPECT_EQ(model->PlanCost(cuts), plan.cost());
      EXPECT_STREQ(model->unit(), plan.unit());
    }
  }
}

TEST(CostModel, AnObjectiveHasAKnownNameAndWhatItNeeds) {
  ExampleGraph example = Mlp(8, 8, 1);
  PlanOptions options;
  options.workers = 2;
  for (const char* name : {"time", "energy"}) {
    options.objective.name = name;
    try {
      MakePlan(example.graph(), example.table(), options);
      FAIL() << name;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("expected \"bytes\", "), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tofu
