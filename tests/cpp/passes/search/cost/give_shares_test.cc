#include "passes/search/cost/give_shares.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "passes/memory/estimate_memory.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"
#include "support/example_time_model.h"
#include "support/mock_graph.h"
#include "support/recount.h"

namespace tofu {
namespace {

TEST(GiveShares, CountsBytesAnew) {
  std::mt19937 random(7);
  int changed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 2);
    PlanOptions options;
    options.workers = seed % 2 == 0 ? 4 : 6;
    const Plan equal = MakePlan(example.graph(), example.table(), options);
    const TileShares shares = RandomShares(equal.parts, &random);
    const Plan plan =
        GiveShares(example.graph(), example.table(), equal, shares, nullptr);
    EXPECT_EQ(plan.shares, shares);
    EXPECT_EQ(plan.tensor_cuts, equal.tensor_cuts);
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
    changed += plan.total_bytes() != equal.total_bytes() ? 1 : 0;
    const Plan back =
        GiveShares(example.graph(), example.table(), plan, TileShares(), nullptr);
    EXPECT_EQ(back.total_bytes(), equal.total_bytes());
    if (!shares.IsPlain()) {
      EXPECT_EQ(plan.status, PlanStatus::kFeasible);
      EXPECT_EQ(plan.lower_bound(), 0);
    }
  }
  EXPECT_GT(changed, 0);
}

TEST(GiveShares, RefusesSharesOfOtherSteps) {
  ExampleGraph example = Mlp(64, 32, 2);
  PlanOptions options;
  options.workers = 4;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const std::vector<std::pair<TileShares, std::string>> refused = {
      {{{{1, 2}}}, "plan: found shares of 1 steps, expected 2, or none"},
      {{{{1, 2, 3}, {}}}, "plan: found 3 shares with a sum of 6 for step 1"},
      {{{{1, 0}, {}}}, "plan: found 2 shares with a sum of 1 for step 1"},
      {{{{1 << 20, 1}, {}}}, "plan: found 2 shares with a sum of 1048577 for step 1"},
      {{{}, 0}, "plan: found bounds of tiles on multiples of 0, expected 1 or more"}};
  for (const auto& [wrong, text] : refused) {
    try {
      GiveShares(example.graph(), example.table(), plan, wrong, nullptr);
      ADD_FAILURE() << "not refused: " << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.blame(), Blame::kPlan);
      EXPECT_EQ(std::string(error.what()).rfind(text, 0), 0u) << error.what();
    }
  }
}

// Two devices of each kind; the second kind is a third as fast.
Machine FastAndSlow() {
  Machine machine = ExampleMachine(4);
  for (const double speed : {3.0, 1.0}) {
    DeviceKind kind{"", machine.device, machine.operators, machine.links};
    kind.device.count = 2;
    for (OperatorRates& rates : kind.operators) {
      rates.flops_per_s = RateTable({{1, speed}});
      rates.bytes_per_s = RateTable({{1, speed}});
    }
    machine.kinds.push_back(kind);
  }
  return machine;
}

TEST(GiveShares, SlowDevicesWithSmallerTilesHoldUpNobody) {
  ExampleGraph example = Mlp(64, 32, 2);
  const Graph& graph = example.graph();
  const Machine machine = FastAndSlow();
  TimeModel model = ModelOf(graph, machine);
  const auto plan_of = [&](const TimeModel& of) {
    PlanOptions options;
    options.workers = 4;
    options.parts = {2, 2};
    options.objective.machine = &of;
    return MakePlan(graph, example.table(), options);
  };
  const Plan equal = plan_of(model);
  const Plan slow = plan_of(ModelOf(graph, ExampleMachine(4)));
  EXPECT_EQ(equal.predicted->compute_ns, slow.predicted->compute_ns)
      << "everyone waits for the slow devices";
  TimeModel balanced = model;
  balanced.is_balanced = true;
  const Plan mean = plan_of(balanced);
  const auto ratio = [&](const Plan& plan) {
    return static_cast<double>(plan.predicted->compute_ns) /
           static_cast<double>(slow.predicted->compute_ns);
  };
  EXPECT_NEAR(ratio(mean), 0.5, 0.01);
  const Plan shared = GiveShares(graph, example.table(), equal, {{{3, 1}, {}}}, &model);
  // All extents are multiples of 8, so the slow devices have a quarter instead of a half.
  EXPECT_NEAR(ratio(shared), 0.5, 0.1);
  EXPECT_LT(shared.cost(), equal.cost());
  EXPECT_EQ(shared.cost(), shared.predicted->step_ns);
  // The fast devices hold more.
  EXPECT_GT(EstimateMemory(graph, example.table(), shared).total(),
            EstimateMemory(graph, example.table(), equal).total());
}

}  // namespace
}  // namespace tofu
