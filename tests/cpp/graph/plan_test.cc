#include "graph/plan.h"

#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "passes/partition/partition.h"
#include "passes/search/make_plan.h"
#include "support/example_graphs.h"

namespace tofu {
namespace {

using Json = nlohmann::json;

class PlanText : public testing::Test {
 protected:
  PlanText() : example_(Mlp(24, 12, 2)) {
    PlanOptions options;
    options.workers = 6;
    options.parts = {3, 2};
    plan_ = MakePlan(example_.graph(), example_.table(), options);
    plan_.routes = {{FirstOperator(), 0, {{{1, 1}, {0, 0}}, {{1, 1}}}}};
    plan_.output_routes = {
        {FirstOperator(), 0, {{{1, 0}}}, {{{1, 1}, {0, 0}}, {{1, 1}}}}};
    json_ = Json::parse(WritePlan(plan_, example_.graph(), example_.table()));
  }

  int FirstOperator() {
    int node = 0;
    while (example_.graph().nodes[node].is_variable()) ++node;
    return node;
  }

  Plan Read(const Json& json) {
    return ReadPlan(json.dump(), example_.graph(), example_.table());
  }

  std::string ErrorOf(const Json& json) {
    try {
      Read(json);
    } catch (const UserError& error) {
      EXPECT_EQ(error.blame(), Blame::kPlan);
      return error.what();
    }
    return "no error";
  }

  ExampleGraph example_;
  Plan plan_;
  Json json_;
};

TEST_F(PlanText, WhatIsWrittenReadsBackTheSame) {
  const Plan plan = Read(json_);
  EXPECT_EQ(plan.parts, (std::vector<int>{3, 2}));
  EXPECT_EQ(plan.tensor_cuts, plan_.tensor_cuts);
  EXPECT_EQ(plan.op_cuts, plan_.op_cuts);
  EXPECT_EQ(plan.node_bytes, plan_.node_bytes);
  EXPECT_EQ(plan.step_bytes, plan_.step_bytes);
  EXPECT_EQ(plan.status, plan_.status);
  EXPECT_EQ(plan.routes, plan_.routes);
  EXPECT_EQ(plan.output_routes, plan_.output_routes);
  EXPECT_EQ(WritePlan(plan, example_.graph(), example_.table()),
            WritePlan(plan_, example_.graph(), example_.table()));
}

TEST_F(PlanText, SharesAreReadAndChecked) {
  EXPECT_EQ(json_.count("shares") + json_.count("tile_multiple"), 0u);
  plan_.shares = {{{1, 2, 3}, {}}, 8};
  const Json json = Json::parse(WritePlan(plan_, example_.graph(), example_.table()));
  EXPECT_EQ(json["shares"], Json({{1, 2, 3}, nullptr}));
  EXPECT_EQ(Read(json).shares, plan_.shares);
  Json other = json;
  other["shares"] = {{2, 2, 2}, {3, 3}};
  EXPECT_TRUE(Read(other).shares.of_steps.empty());
  for (const auto& [wrong, complaint] : std::vector<std::pair<Json, std::string>>{
           {Json::array({nullptr}),
            "shares: found an array of 1, expected an array of 2"},
           {Json({{1, 2}, nullptr}), "shares[0]: found an array of 2, expected null or"},
           {Json({{1, 0, 2}, nullptr}), "shares[0][1]: found 0"}}) {
    other["shares"] = wrong;
    EXPECT_NE(ErrorOf(other).find(complaint), std::string::npos) << ErrorOf(other);
  }
  other = json;
  other["tile_multiple"] = 0;
  EXPECT_NE(ErrorOf(other).find("tile_multiple: found 0"), std::string::npos);
}

TEST_F(PlanText, CountsItsGroupsAndBytes) {
  EXPECT_EQ(json_["workers"], 6);
  EXPECT_EQ(json_["steps"][0]["groups"], 1);
  EXPECT_EQ(json_["steps"][1]["groups"], 3);
  int64_t bytes = 0;
  for (const Json& op : json_["operators"]) bytes += op["bytes"].get<int64_t>();
  EXPECT_EQ(json_["total_bytes"], bytes);
  EXPECT_EQ(json_["total_bytes"], json_["steps"][0]["bytes"].get<int64_t>() +
                                      json_["steps"][1]["bytes"].get<int64_t>());
  EXPECT_GE(json_["gap"].get<double>(), 0.0);
}

TEST_F(PlanText, APlanOfAnotherGraphIsRefused) {
  ExampleGraph other = Mlp(24, 24, 2);
  try {
    ReadPlan(json_.dump(), other.graph(), other.table());
    ADD_FAILURE() << "read";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("the plan is for another graph"),
              std::string::npos);
  }
}

TEST_F(PlanText, CutsThatAreImpossibleAreRefused) {
  Json json = json_;
  json["tensors"][0]["cuts"] = {5, 0};
  EXPECT_NE(ErrorOf(json).find("tensors[0].cuts[0]: found 5"), std::string::npos);
  json = json_;
  json["tensors"][0]["cuts"] = {0};
  EXPECT_NE(ErrorOf(json).find("an array of 2, one cut per step"), std::string::npos);
  json = json_;
  json["parts"] = {500, 2};
  json["workers"] = 1000;
  EXPECT_NE(ErrorOf(json).find("at least 500 elements left at this step"),
            std::string::npos)
      << ErrorOf(json);
  json = json_;
  json["operators"][0]["cuts"][0] = "zz";
  EXPECT_NE(ErrorOf(json).find("can be split along"), std::string::npos);
  json = json_;
  json["version"] = 9;
  EXPECT_NE(ErrorOf(json).find("version: found 9"), std::string::npos);
}

TEST_F(PlanText, RoutesWithOtherStopsDiffer) {
  Route route = plan_.routes[0];
  EXPECT_EQ(route, plan_.routes[0]);
  route.stops.pop_back();
  EXPECT_FALSE(route == plan_.routes[0]);
  OutputRoute output_route = plan_.output_routes[0];
  EXPECT_EQ(output_route, plan_.output_routes[0]);
  output_route.stops.pop_back();
  EXPECT_FALSE(output_route == plan_.output_routes[0]);
}

TEST_F(PlanText, RoutesThatAreImpossibleAreRefused) {
  Json json = json_;
  json["routes"][0]["node"] = "nowhere";
  EXPECT_NE(ErrorOf(json).find("a node of the graph"), std::string::npos);
  json = json_;
  const size_t inputs = example_.graph().nodes[FirstOperator()].inputs.size();
  for (size_t input : {inputs, size_t{9}}) {
    json["routes"][0]["input"] = input;
    EXPECT_NE(ErrorOf(json).find("routes[0].input"), std::string::npos);
  }
  json["routes"][0]["input"] = inputs - 1;
  EXPECT_EQ(ErrorOf(json), "no error");
  json = json_;
  json["routes"][0]["stops"][0][0]["dim"] = 2;
  EXPECT_NE(ErrorOf(json).find("stops[0][0].dim"), std::string::npos);
  json = json_;
  json["routes"][0]["stops"][0][0]["step"] = 0;
  EXPECT_NE(ErrorOf(json).find("another step"), std::string::npos);
  json = json_;
  json["routes"][0]["stops"] = Json::array();
  EXPECT_NE(ErrorOf(json).find("at least one stop"), std::string::npos);
}

TEST_F(PlanText, RoutesOfOutputsThatAreImpossibleAreRefused) {
  Json json = json_;
  json["output_routes"][0]["node"] = "nowhere";
  EXPECT_NE(ErrorOf(json).find("a node of the graph"), std::string::npos);
  json = json_;
  json["output_routes"][0]["output"] = 9;
  EXPECT_NE(ErrorOf(json).find("output_routes[0].output"), std::string::npos);
  json = json_;
  json["output_routes"][0]["partial"][0][0]["dim"] = 2;
  EXPECT_NE(ErrorOf(json).find("partial[0][0].dim"), std::string::npos);
  json = json_;
  json["output_routes"][0]["partial"] = Json::array();
  EXPECT_EQ(ErrorOf(json), "no error");
  json["output_routes"][0]["stops"] = Json::array();
  EXPECT_NE(ErrorOf(json).find("at least one stop, here or in partial"),
            std::string::npos);
}

TEST_F(PlanText, EveryTruncatedDocumentIsAUserError) {
  const std::string text = json_.dump();
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_THROW(ReadPlan(text.substr(0, length), example_.graph(), example_.table()),
                 UserError)
        << "at " << length;
  }
}

// Changes or removes a random value in the document.
void Mutate(Json* json, std::mt19937* random) {
  Json* at = json;
  while (at->is_structured() && !at->empty()) {
    auto it = at->begin();
    std::advance(it, static_cast<std::ptrdiff_t>((*random)() % at->size()));
    if ((*random)() % 8 == 0) {
      at->erase(it);
      return;
    }
    at = &*it;
  }
  const std::vector<Json> values = {nullptr, -2,    -1,  0,       1,    2,
                                    3,       1.5,   "b", "fc0",   true, Json::array(),
                                    {0, 0},  1e300, -7,  1 << 30, "",   Json::object()};
  *at = values[(*random)() % values.size()];
}

TEST_F(PlanText, ADamagedDocumentIsAPlanOrAUserError) {
  constexpr unsigned kSeed = 4;
  std::mt19937 random(kSeed);
  const std::string text = json_.dump();
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    Json json = json_;
    Mutate(&json, &random);
    std::string damaged = json.dump();
    if (i % 2 == 1) {
      damaged = text;
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    }
    try {
      const Plan plan = ReadPlan(damaged, example_.graph(), example_.table());
      EXPECT_EQ(plan.workers(), 6);
      // Every plan that is read without an error can be used.
      PartitionGraph(example_.graph(), example_.table(), plan, {});
    } catch (const UserError& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << kSeed << ", " << i << ": " << error.what() << " for "
                    << damaged;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST_F(PlanText, SaysHowItWasSearched) {
  EXPECT_EQ(json_["mode"], "tofu");
  EXPECT_EQ(json_["nodes"], example_.graph().num_nodes());
}

}  // namespace
}  // namespace tofu
