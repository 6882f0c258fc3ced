#include "graph/verify_graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// x and w, then mul2, then add3.
Graph Sound() {
  MockGraph mock(0);
  const NodeEntry x = mock.Variable("x", {4});
  const NodeEntry product = mock.Elementwise("mul", {x, mock.Variable("w", {4})});
  mock.Head(mock.Elementwise("add", {product, x}), "output");
  return mock.graph;
}

// The error about the graph after `damage`.
std::string Complaint(const std::function<void(Graph*)>& damage) {
  Graph graph = Sound();
  damage(&graph);
  try {
    VerifyGraph(graph, "the test");
  } catch (const InternalError& error) {
    return error.what();
  } catch (const UserError& error) {
    return error.what();
  }
  return "sound";
}

void ExpectComplaint(const std::string& expected,
                     const std::function<void(Graph*)>& damage) {
  const std::string error = Complaint(damage);
  EXPECT_NE(error.find(expected), std::string::npos) << error;
}

TEST(VerifyGraph, IsOnInTheseTests) { EXPECT_TRUE(kVerifyGraphs); }

TEST(VerifyGraph, TakesASoundGraph) {
  EXPECT_EQ(Complaint([](Graph*) {}), "sound");
}

TEST(VerifyGraph, NamesThePass) {
  ExpectComplaint("after the test", [](Graph* g) { g->heads[0].node = 9; });
}

TEST(VerifyGraph, FindsEdgesThatLeadNowhere) {
  ExpectComplaint("add3 (number 3) reads output 0 of node number 9",
                  [](Graph* g) { g->nodes[3].inputs[0].node = 9; });
  ExpectComplaint("reads output 1 of node number 2",
                  [](Graph* g) { g->nodes[3].inputs[0].index = 1; });
  ExpectComplaint("reads output -1", [](Graph* g) { g->nodes[3].inputs[1].index = -1; });
  ExpectComplaint("a head is output 2", [](Graph* g) { g->heads[0].index = 2; });
}

TEST(VerifyGraph, FindsCycles) {
  ExpectComplaint("mul2 (number 2) reads output 0 of node number 3",
                  [](Graph* g) { g->nodes[2].inputs[0].node = 3; });
  ExpectComplaint("mul2 (number 2) depends on node number 3",
                  [](Graph* g) { g->nodes[2].control_deps = {3}; });
  ExpectComplaint("depends on node number 2",
                  [](Graph* g) { g->nodes[2].control_deps = {2}; });
  ExpectComplaint("depends on node number -1",
                  [](Graph* g) { g->nodes[2].control_deps = {-1}; });
}

TEST(VerifyGraph, FindsEntriesThatDoNotFit) {
  ExpectComplaint("which contradicts its entry offsets",
                  [](Graph* g) { g->nodes[3].num_outputs = 2; });
  ExpectComplaint("expected one more than nodes",
                  [](Graph* g) { g->first_entry.pop_back(); });
  ExpectComplaint("4 entries have 3 shapes", [](Graph* g) { g->shapes.pop_back(); });
  ExpectComplaint("4 shapes and 5 dtypes", [](Graph* g) { g->dtypes.push_back(0); });
}

TEST(VerifyGraph, FindsTensorsThatCannotBe) {
  ExpectComplaint("mul2, output 0: extent -1", [](Graph* g) { g->shapes[2] = {-1}; });
  ExpectComplaint("found type flag 99", [](Graph* g) { g->dtypes[2] = 99; });
  ExpectComplaint("variable x has inputs or several outputs",
                  [](Graph* g) { g->nodes[0].inputs = {{0, 0}}; });
}

TEST(VerifyGraph, FindsNamesAndRolesThatDoNotFit) {
  ExpectComplaint("two variables are called x", [](Graph* g) { g->nodes[1].name = "x"; });
  ExpectComplaint("1 heads have 2 roles",
                  [](Graph* g) { g->head_roles = {"output", "output"}; });
}

}  // namespace
}  // namespace tofu
