#include "graph/between.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/example_graphs.h"

namespace tofu {
namespace {

Graph WithAttr(int64_t batch, const std::string& value) {
  ExampleGraph example = UnrolledRnn(batch, 4, 3);
  Graph graph = example.graph();
  graph.nodes[2].attrs["shape"] = value;
  return graph;
}

TEST(GraphAt, IsTheGraphThatIsMadeForTheSize) {
  const Graph a = WithAttr(4, "(4, 2)"), b = WithAttr(6, "(6, 2)");
  for (int64_t size : {1, 2, 4, 5, 6, 7, 1000}) {
    const std::string attr = "(" + std::to_string(size) + ", 2)";
    const std::optional<Graph> graph = GraphAt({a, 4}, {b, 6}, size);
    ASSERT_TRUE(graph) << size;
    EXPECT_EQ(WriteGraph(*graph), WriteGraph(WithAttr(size, attr)));
  }
}

// Two graphs of sizes 10 and 20; the first node's attribute at 15.
std::string Between(const std::string& at_10, const std::string& at_20) {
  const std::optional<Graph> graph =
      GraphAt({WithAttr(10, at_10), 10}, {WithAttr(20, at_20), 20}, 15);
  return graph ? graph->nodes[2].attrs.at("shape") : "none";
}

TEST(GraphAt, MovesTheWholeNumbersOfAnAttribute) {
  EXPECT_EQ(Between("(10, -30, 7)", "(20, -60, 7)"), "(15, -45, 7)");
  EXPECT_EQ(Between("9", "11"), "10");
  EXPECT_EQ(Between("30", "10"), "20");
  EXPECT_EQ(Between("x10y", "x20y"), "x15y");
  EXPECT_EQ(Between("0.0625", "0.0625"), "0.0625");
}

TEST(GraphAt, RefusesAttributesThatAreOnNoLine) {
  EXPECT_EQ(Between("1", "2"), "none") << "1.5 is not whole";
  EXPECT_EQ(Between("0.10", "0.20"), "none") << "a fraction's digits are no number";
  EXPECT_EQ(Between("1e-05", "1e-15"), "none") << "nor are those after a zero";
  EXPECT_EQ(Between("(10,)", "(20, 2)"), "none");
  EXPECT_EQ(Between("(10, 2)", "(20,)"), "none");
  EXPECT_EQ(Between("mean", "sum"), "none");
  EXPECT_EQ(Between("10", ""), "none");
  EXPECT_EQ(Between("10", "99999999999999999999"), "none");
  const Graph a = WithAttr(10, "20"), b = WithAttr(20, "10");
  EXPECT_TRUE(GraphAt({a, 10}, {b, 20}, 30)) << "0";
  EXPECT_FALSE(GraphAt({a, 10}, {b, 20}, 31)) << "less than 0";
}

TEST(GraphAt, RefusesTensorsWithoutElementsOrWithTooMany) {
  const Graph a = UnrolledRnn(10, 4, 3).graph(), b = UnrolledRnn(20, 4, 3).graph();
  int64_t grown = 0;  // elements of the largest tensor that a size of one more adds
  for (size_t e = 0; e < a.shapes.size(); ++e) {
    grown = std::max(grown, (NumElements(b.shapes[e]) - NumElements(a.shapes[e])) / 10);
  }
  EXPECT_TRUE(GraphAt({a, 10}, {b, 20}, 1));
  EXPECT_FALSE(GraphAt({a, 10}, {b, 20}, 0));
  EXPECT_FALSE(GraphAt({a, 10}, {b, 20}, -10));
  EXPECT_TRUE(GraphAt({a, 10}, {b, 20}, kMaxElements / grown));
  EXPECT_FALSE(GraphAt({a, 10}, {b, 20}, kMaxElements / grown + 1));
  EXPECT_FALSE(GraphAt({a, 10}, {b, 20}, int64_t{1} << 62));
}

TEST(GraphAt, RefusesGraphsThatDifferInMoreThanSize) {
  const Graph a = UnrolledRnn(10, 4, 3).graph(), b = UnrolledRnn(20, 4, 3).graph();
  const auto refused = [&](Graph other) { return !GraphAt({a, 10}, {other, 20}, 15); };
  ASSERT_FALSE(refused(b));
  EXPECT_TRUE(refused(UnrolledRnn(20, 4, 4).graph())) << "more nodes";
  Graph other = b;
  other.nodes[1].name += "x";
  EXPECT_TRUE(refused(other)) << "a name";
  other = b;
  other.nodes.back().op = "another";
  EXPECT_TRUE(refused(other)) << "an operator";
  other = b;
  other.nodes.back().inputs[0].node = 0;
  EXPECT_TRUE(refused(other)) << "an input";
  other = b;
  other.dtypes[0] = 1;
  EXPECT_TRUE(refused(other)) << "a data type";
  other = b;
  other.shapes[0].push_back(1);
  EXPECT_TRUE(refused(other)) << "a dimension";
  other = b;
  other.nodes[1].attrs["more"] = "1";
  EXPECT_TRUE(refused(other)) << "an attribute";
  other = b;
  other.heads.pop_back();
  EXPECT_TRUE(refused(other)) << "a head";
  other = b;
  other.nodes.back().control_deps = {0};
  EXPECT_TRUE(refused(other)) << "a control dependency";
}

}  // namespace
}  // namespace tofu
