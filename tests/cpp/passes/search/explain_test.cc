#include "passes/search/explain.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/error.h"
#include "graph/names.h"
#include "passes/search/cost/give_shares.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

using Json = nlohmann::json;

class Explained : public testing::Test {
 protected:
  Explained() : example_(Mlp(24, 12, 2)) {
    PlanOptions options;
    options.workers = 6;
    plan_ = MakePlan(example_.graph(), example_.table(), options);
  }

  Json Of(const std::string& name) {
    return Json::parse(Explain(example_.graph(), example_.table(), plan_, name));
  }

  ExampleGraph example_;
  Plan plan_;
};

TEST_F(Explained, WhatATensorChoseCostsWhatThePlanCosts) {
  for (const std::string name : {"fc0_weight", "fc0"}) {
    const Json json = Of(name);
    EXPECT_EQ(json["total_bytes"], plan_.total_bytes());
    ASSERT_EQ(json["tensor"]["steps"].size(), plan_.parts.size());
    for (const Json& step : json["tensor"]["steps"]) {
      bool is_listed = false;
      for (const Json& each : step["alternatives"]) {
        EXPECT_LE(each["searched_bytes"], each["local_bytes"]) << each;
        EXPECT_GE(each["searched_bytes"], plan_.lower_bound_bytes) << each;
        if (each["cut"] != step["chosen"]) continue;
        is_listed = true;
        EXPECT_EQ(each["local_bytes"], plan_.total_bytes());
        EXPECT_EQ(each["searched_bytes"], plan_.total_bytes());
      }
      EXPECT_TRUE(is_listed) << step;
    }
  }
}

TEST_F(Explained, AnOperatorListsEachStrategyWithTheBytesOfItsTensors) {
  const Json op = Of("fc0")["operator"];
  ASSERT_EQ(op["steps"].size(), 2u);
  for (const Json& step : op["steps"]) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Json& each : step["strategies"]) {
      int64_t sum = 0;
      for (const Json& slot : each["inputs"]) sum += slot["bytes"].get<int64_t>();
      for (const Json& slot : each["outputs"]) sum += slot["bytes"].get<int64_t>();
      EXPECT_EQ(each["bytes"], sum);
      least = std::min(least, sum);
      if (each["variable"] != step["chosen"]) continue;
      EXPECT_EQ(each["bytes"], op["bytes"]);
    }
    EXPECT_EQ(op["bytes"], least) << "the plan took the cheapest";
  }
}

// A tensor's own cut and an operator's own strategy cost as much as the plan; with these
// shares, equal parts cost something else.
TEST(ExplainedShares, AllBytesAreThoseOfThePlansShares) {
  int differ = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExampleGraph example = RandomGraph(seed, 2);
    const Graph& graph = example.graph();
    PlanOptions options;
    options.workers = 6;
    const Plan equal = MakePlan(graph, example.table(), options);
    TileShares shares;
    for (int parts : equal.parts) shares.of_steps.emplace_back(parts, 1).back() = 3;
    const Plan plan = GiveShares(graph, example.table(), equal, shares, nullptr);
    differ += plan.total_bytes() != equal.total_bytes() ? 1 : 0;
    for (size_t node = 0; node < graph.nodes.size(); ++node) {
      if (graph.nodes[node].is_variable()) continue;
      const Json json =
          Json::parse(Explain(graph, example.table(), plan, graph.nodes[node].name));
      ASSERT_EQ(json["total_bytes"], plan.total_bytes());
      for (const Json& step : json["tensor"]["steps"]) {
        for (const Json& each : step["alternatives"]) {
          ASSERT_LE(each["searched_bytes"], each["local_bytes"]) << each;
          if (each["cut"] != step["chosen"]) continue;
          ASSERT_LE(each["local_bytes"], plan.total_bytes());
        }
      }
      for (const Json& step : json["operator"]["steps"]) {
        for (const Json& each : step["strategies"]) {
          if (each["variable"] != step["chosen"]) continue;
          ASSERT_EQ(each["bytes"], plan.node_bytes[node]);
        }
      }
    }
  }
  EXPECT_GT(differ, 0);
}

// Deciding the other tensors again gives the plan with this cut pinned.
TEST(ExplainedOneStep, AnAlternativeCostsWhatThePlanWithThatPinCosts) {
  ExampleGraph example = Mlp(24, 12, 2);
  PlanOptions options;
  options.workers = 2;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  std::set<int64_t> explained;
  for (const std::string name : {"fc0_weight", "fc1_weight"}) {
    const Json json =
        Json::parse(Explain(example.graph(), example.table(), plan, name))["tensor"];
    for (const Json& each : json["steps"][0]["alternatives"]) {
      options.pins = {{name, {each["cut"].get<int>()}}};
      const Plan pinned = MakePlan(example.graph(), example.table(), options);
      EXPECT_EQ(each["searched_bytes"], pinned.total_bytes()) << name << each;
      explained.insert(pinned.total_bytes());
    }
  }
  EXPECT_GT(explained.size(), 1u) << "some pins cost more";
}

// wx is the weight of three equal products, one per timestep.
TEST(ExplainedTimesteps, WhatATensorChoseCostsWhatThePlanCosts) {
  ExampleGraph example = UnrolledRnn(12, 8, 3);
  PlanOptions options;
  options.workers = 2;
  const Plan plan = MakePlan(example.graph(), example.table(), options);
  const Json json =
      Json::parse(Explain(example.graph(), example.table(), plan, "wx"))["tensor"];
  int chosen = 0;
  for (const Json& each : json["steps"][0]["alternatives"]) {
    EXPECT_GE(each["local_bytes"], plan.total_bytes());
    if (each["cut"] != json["steps"][0]["chosen"]) continue;
    ++chosen;
    EXPECT_EQ(each["local_bytes"], plan.total_bytes());
  }
  EXPECT_EQ(chosen, 1);
}

TEST_F(Explained, AVariableHasNoOperatorAndReductionsAreNamed) {
  EXPECT_TRUE(Of("fc0_weight")["operator"].is_null());
  const Json strategies = Of("fc0")["operator"]["steps"][0]["strategies"];
  std::string combine;
  for (const Json& each : strategies) {
    combine += each["outputs"][0]["combine"].get<std::string>() + " ";
  }
  EXPECT_EQ(combine, "concatenate concatenate sum whole ") << strategies;
}

TEST_F(Explained, AnUnknownNameIsTheUsersError) {
  try {
    Of("nobody");
    ADD_FAILURE() << "explained";
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    EXPECT_NE(std::string(error.what()).find("explain \"nobody\": found no tensor"),
              std::string::npos);
  }
}

TEST_F(Explained, APlanThatCutsTiedTensorsDifferentlyIsRefused) {
  const int weight = FindEntry(example_.graph(), "fc0_weight");
  std::vector<int>& cuts = plan_.tensor_cuts[weight];
  cuts = cuts == std::vector<int>{0, 0} ? std::vector<int>{1, 1} : std::vector<int>{0, 0};
  try {
    Of("fc0");
    ADD_FAILURE() << "explained";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the graph ties them together"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tofu
