#include "passes/schedule/order_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fetch/crossing.h"
#include "passes/divide/fetch.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/retire.h"
#include "support/built_nodes.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

// Worker 1 fetches worker 0's tile `t`, which worker 0 makes before `own1` and `own2`.
class Exchange : public testing::Test {
 protected:
  Exchange() {
    const NodeEntry x = Variable(&builder_, "x", 0);
    const NodeEntry y = Variable(&builder_, "y", 1);
    const NodeEntry tile = Operator(&builder_, "relu", "t", {x});
    const NodeEntry own1 = Operator(&builder_, "relu", "own1", {x});
    const NodeEntry busy = Operator(&builder_, "relu", "busy", {y});
    const Box box = {{0}, {8}};
    const FetchSpec spec = PlanFetch(1, box, box, {{0, box}});
    const NodeEntry region =
        MultiFetchEmitter(Crossing::kCopies, &builder_).Emit(spec, {tile}, kFloat32, "f");
    const NodeEntry use = Operator(&builder_, "relu", "use", {region});
    builder_.graph().heads = {own1, busy, use};
    Retire(&builder_);
  }

  int Place(const std::string& name) {
    const std::vector<std::string> names = Names(builder_.graph());
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return static_cast<int>(found - names.begin());
  }

  GraphBuilder builder_;
};

TEST_F(Exchange, AnAddressIsPublishedRightBehindItsTile) {
  OrderNodes(&builder_.graph());
  EXPECT_EQ(Place("t/publish0"), Place("t") + 1);
}

TEST_F(Exchange, ATileIsRetiredRightBehindItsLastReader) {
  OrderNodes(&builder_.graph());
  EXPECT_EQ(Place("t/retire0"), Place("f/fetch") + 1);
}

TEST_F(Exchange, AFetchStaysBehindItsWorkersNodesUnlessItNeedNotWait) {
  OrderNodes(&builder_.graph());
  EXPECT_GT(Place("f/fetch"), Place("busy"));
  OrderNodes(&builder_.graph(), /*delay_fetches=*/false);
  EXPECT_LT(Place("f/fetch"), Place("busy"));
}

TEST_F(Exchange, TheOrderIsThatOfTheNumbersBefore) {
  const std::vector<std::string> before = Names(builder_.graph());
  const std::vector<int> order = OrderNodes(&builder_.graph());
  std::vector<std::string> moved;
  for (int number : order) moved.push_back(before[number]);
  EXPECT_EQ(moved, Names(builder_.graph()));
}

TEST_F(Exchange, OrderingAgainChangesNothing) {
  OrderNodes(&builder_.graph());
  const std::string once = WriteGraph(builder_.graph());
  OrderNodes(&builder_.graph());
  EXPECT_EQ(WriteGraph(builder_.graph()), once);
}

}  // namespace
}  // namespace tofu
