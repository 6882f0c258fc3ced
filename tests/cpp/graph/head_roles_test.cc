#include "graph/head_roles.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tofu {
namespace {

Graph WithHeads(const std::vector<std::string>& roles) {
  Graph graph;
  graph.heads.resize(roles.size());
  graph.head_roles = roles;
  return graph;
}

const std::vector<std::string> kTraining = {"output", "gradient:w", "gradient:b",
                                            "update:w", "aux:mean"};

TEST(HeadRoles, AreAKindAndAVariable) {
  EXPECT_EQ(RoleKind("gradient:fc:weight"), "gradient");
  EXPECT_EQ(RoleVariable("gradient:fc:weight"), "fc:weight");
  EXPECT_EQ(RoleKind("output"), "output");
  EXPECT_EQ(RoleVariable("output"), "");
}

TEST(HeadRoles, UpdatesAndAuxiliaryStatesAreWrittenInPlace) {
  EXPECT_TRUE(IsWrittenInPlace("update:w"));
  EXPECT_TRUE(IsWrittenInPlace("aux:mean"));
  EXPECT_FALSE(IsWrittenInPlace("gradient:w"));
  EXPECT_FALSE(IsWrittenInPlace("output"));
}

TEST(HeadRoles, WithoutRolesEveryHeadIsAnOutput) {
  Graph graph = WithHeads({"a", "b"});
  graph.head_roles.clear();
  EXPECT_EQ(HeadRole(graph, 1), kOutputRole);
  EXPECT_EQ(SelectHeads(graph, {}), (std::vector<size_t>{0, 1}));
}

TEST(HeadRoles, UpdatesAreSelectedOnlyWhenAskedFor) {
  const Graph graph = WithHeads(kTraining);
  EXPECT_EQ(SelectHeads(graph, {}), (std::vector<size_t>{0, 1, 2, 4}));
  EXPECT_EQ(SelectHeads(graph, {{"update"}}), std::vector<size_t>{3});
}

TEST(HeadRoles, AreSelectedWholeOrByKindInTheGraphsOrder) {
  const Graph graph = WithHeads(kTraining);
  EXPECT_EQ(SelectHeads(graph, {{"gradient:b", "output"}}), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(SelectHeads(graph, {{"gradient"}}), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(SelectHeads(graph, {{"gradient", "gradient:w"}}),
            (std::vector<size_t>{1, 2}));
  EXPECT_TRUE(SelectHeads(graph, std::vector<std::string>{}).empty());
}

TEST(HeadRoles, ARoleThatNoHeadHasIsNamed) {
  try {
    SelectHeads(WithHeads(kTraining), {{"output", "gradient:v"}});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kGraph);
    EXPECT_NE(std::string(error.what()).find("\"gradient:v\""), std::string::npos);
  }
}

}  // namespace
}  // namespace tofu
