#include "passes/search/pins.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/box.h"
#include "graph/names.h"
#include "passes/search/make_plan.h"
#include "passes/search/modes.h"
#include "support/example_graphs.h"
#include "support/recount.h"

namespace tofu {
namespace {

Plan PlanWith(ExampleGraph* example, const Pins& pins, const std::string& mode = "tofu") {
  PlanOptions options;
  options.workers = 4;
  options.pins = pins;
  options.mode = mode;
  return MakePlan(example->graph(), example->table(), options);
}

std::string ErrorOf(ExampleGraph example, const Pins& pins) {
  try {
    PlanWith(&example, pins);
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kPlan);
    return error.what();
  }
  return "no error";
}

testing::AssertionResult Says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in: " << text;
}

TEST(Pins, FixAnyTensorInEveryMode) {
  ExampleGraph example = Mlp(64, 64, 2);
  const Pins pins = {{"fc0_weight", {1, 0}}, {"fc1", {1}}, {"fc1_bias", {-1}}};
  for (const std::string& mode : SearchModes()) {
    const Plan plan = PlanWith(&example, pins, mode);
    const auto cuts = [&](const std::string& name) {
      return plan.tensor_cuts[FindEntry(example.graph(), name)];
    };
    EXPECT_EQ(cuts("fc0_weight"), (std::vector<int>{1, 0})) << mode;
    EXPECT_EQ(cuts("fc1"), (std::vector<int>{1, 1})) << mode << ": one for all steps";
    EXPECT_EQ(cuts("fc1_bias"), (std::vector<int>{kReplicated, kReplicated})) << mode;
    EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan))
        << mode;
  }
}

TEST(Pins, FurtherOutputsHaveNumbers) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {8, 16}, "data");
  const std::vector<NodeEntry> halves = example.Split("split", x, 2);
  example.Head(halves[0], "output");
  example.Head(halves[1], "output");
  const Plan plan = PlanWith(&example, {{"split[1]", {1, 0}}});
  EXPECT_EQ(plan.tensor_cuts[example.graph().entry_id(halves[1])],
            (std::vector<int>{1, 0}));
  EXPECT_TRUE(Says(ErrorOf(example, {{"split[2]", {0}}}), "found no tensor"));
}

TEST(Pins, AnImpossiblePinIsNamedAlone) {
  const ExampleGraph example = Mlp(64, 3, 2);
  const Pins fine = {{"fc0", {0}}};
  Pins pins = fine;
  pins["fc1_weight"] = {0, 0};
  const std::string text = ErrorOf(example, pins);
  EXPECT_TRUE(Says(text,
                   "pin of \"fc1_weight\", step 2: found 1 elements left along "
                   "dimension 0, expected at least 2, one for each part"));
  EXPECT_EQ(text.find("\"fc0\""), std::string::npos);
  pins = fine;
  pins["fc1"] = {2, 0};
  EXPECT_TRUE(Says(ErrorOf(example, pins), "found dimension 2, expected -1 (whole)"));
}

TEST(Pins, TwoThatContradictEachOtherAreNamedWithWhatTiesThem) {
  const ExampleGraph example = Mlp(64, 64, 3);
  const std::string by_relu =
      ErrorOf(example, {{"data", {0}}, {"fc1_biased", {0}}, {"fc1_act", {1}}});
  EXPECT_TRUE(Says(by_relu, "pins \"fc1_act=1,1\" and \"fc1_biased=0,0\" conflict"));
  EXPECT_TRUE(Says(by_relu,
                   "\"fc1_act\" and \"fc1_biased\" belong to \"fc1_act\", which "
                   "works element by element"));
  EXPECT_EQ(by_relu.find("data"), std::string::npos) << by_relu;
  const std::string by_update = ErrorOf(example, {{"fc2_weight", {0}}, {"fc2_dw", {1}}});
  EXPECT_TRUE(Says(by_update, "are a parameter or state and its update"));
}

TEST(Pins, MayCutTimestepsApart) {
  ExampleGraph example = UnrolledRnn(64, 64, 4);
  const Plan plan = PlanWith(&example, {{"t1_mx", {0}}, {"t2_mx", {1}}});
  const auto cuts = [&](const std::string& name) {
    return plan.tensor_cuts[FindEntry(example.graph(), name)];
  };
  EXPECT_EQ(cuts("t1_mx"), (std::vector<int>{0, 0}));
  EXPECT_EQ(cuts("t2_mx"), (std::vector<int>{1, 1}));
  EXPECT_EQ(plan.total_bytes(), Recount(example.graph(), example.table(), plan));
}

}  // namespace
}  // namespace tofu
