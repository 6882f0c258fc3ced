#include "passes/coarsen/timesteps.h"

#include <gtest/gtest.h>

#include "support/example_graphs.h"

namespace tofu {
namespace {

// A graph, its signatures and correspondences, and questions by name.
struct Aligned {
  explicit Aligned(ExampleGraph example)
      : graph(example.graph()),
        signatures(Signatures(graph, example.table())),
        first(AlignTimesteps(graph, GroupForwardBackward(graph, example.table()),
                             signatures)) {}

  int Node(const std::string& name) const {
    for (int node = 0; node < graph.num_nodes(); ++node) {
      if (graph.nodes[node].name == name) return node;
    }
    ADD_FAILURE() << "no node " << name;
    return 0;
  }
  bool SameSignature(const std::string& a, const std::string& b) const {
    return signatures[Node(a)] == signatures[Node(b)];
  }
  bool Correspond(const std::string& a, const std::string& b) const {
    return first[Node(a)] == first[Node(b)];
  }

  Graph graph;
  std::vector<int> signatures;
  std::vector<int> first;
};

TEST(Timesteps, SignaturesTellAttributesShapesAndDtypesApart) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  const NodeEntry y = example.Variable("y", {4, 2});
  example.MatMul("plain", x, x);
  example.MatMul("again", x, x);
  example.MatMul("transposed", x, x, true);
  example.MatMul("narrow", x, y);
  example.SetDtype(1);
  example.MatMul("double", x, x);
  const Aligned g(example);
  EXPECT_EQ(g.signatures[0], -1) << "a variable has none";
  EXPECT_TRUE(g.SameSignature("plain", "again"));
  for (const char* other : {"transposed", "narrow", "double"}) {
    EXPECT_FALSE(g.SameSignature("plain", other)) << other;
  }
}

TEST(Timesteps, DecorationsDoNotMatter) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4});
  example.Elementwise("a", {x});
  example.Elementwise("b", {x});
  Graph graph = example.graph();
  graph.nodes[1].attrs["__layer__"] = "1";
  EXPECT_EQ(Signatures(graph, example.table())[1], Signatures(graph, example.table())[2]);
  graph.nodes[1].attrs["alpha"] = "1";
  EXPECT_NE(Signatures(graph, example.table())[1], Signatures(graph, example.table())[2]);
}

TEST(Timesteps, ForwardAndBackwardOperatorsOfStepsCorrespond) {
  const Aligned g(UnrolledRnn(4, 6, 4));
  for (const char* op : {"_mx", "_mh", "_sum", "_h", "_ds", "_dwx", "_dwh"}) {
    EXPECT_TRUE(g.Correspond(std::string("t1") + op, std::string("t2") + op)) << op;
  }
  EXPECT_FALSE(g.Correspond("t1_mx", "t1_mh")) << "weights of their own";
  EXPECT_FALSE(g.Correspond("t1_dwx", "t1_dwh"));
}

TEST(Timesteps, ProducersAtOneSlotCorrespondOnlyByTheSameOutput) {
  ExampleGraph example;
  const NodeEntry shared = example.Variable("shared", {4, 4}, "parameter");
  for (const char* name : {"a", "b"}) {
    const std::string n = name;
    const NodeEntry x = example.Variable(n + "_x", {4, 8}, "data");
    const std::vector<NodeEntry> halves = example.Split(n + "_split", x, 2);
    const NodeEntry half = halves[n == "a" ? 0 : 1];
    example.Head(example.MatMul(n + "_y", half, shared), "output");
  }
  const Aligned g(example);
  EXPECT_TRUE(g.Correspond("a_y", "b_y"));
  EXPECT_FALSE(g.Correspond("a_split", "b_split")) << "another half is read";
}

TEST(Timesteps, SeveralEqualReadersAreNotToldApart) {
  ExampleGraph example;
  const NodeEntry shared = example.Variable("shared", {4, 4}, "parameter");
  for (const char* name : {"a", "b"}) {
    const std::string n = name;
    const NodeEntry x = example.Variable(n + "_x", {4, 4}, "data");
    const NodeEntry y = example.MatMul(n + "_y", x, shared);
    example.Head(example.Elementwise(n + "_once", {y}, "tanh"), "output");
    example.Head(example.Elementwise(n + "_twice1", {y}), "output");
    example.Head(example.Elementwise(n + "_twice2", {y}), "output");
  }
  const Aligned g(example);
  EXPECT_TRUE(g.Correspond("a_once", "b_once"));
  for (const char* a : {"a_twice1", "a_twice2"}) {
    for (const char* b : {"b_twice1", "b_twice2"}) {
      EXPECT_FALSE(g.Correspond(a, b)) << a << " and " << b;
    }
  }
}

TEST(Timesteps, DataIsNotShared) {
  ExampleGraph example;
  const NodeEntry x = example.Variable("x", {4, 4}, "data");
  for (const char* name : {"a", "b"}) {
    example.Head(example.MatMul(name, x, x), "output");
  }
  const Aligned g(example);
  EXPECT_FALSE(g.Correspond("a", "b")) << "nothing says that they are one step's";
}

TEST(Timesteps, ParametersAndStatesAreShared) {
  for (const char* role : {"parameter", "aux", ""}) {
    ExampleGraph example;
    const NodeEntry shared = example.Variable("shared", {4, 4}, role);
    for (const char* name : {"a", "b"}) {
      const NodeEntry x = example.Variable(name + std::string("_x"), {4, 4}, "data");
      example.Head(example.MatMul(name, x, shared), "output");
    }
    const Aligned g(example);
    EXPECT_TRUE(g.Correspond("a", "b")) << role;
  }
}

TEST(Timesteps, DifferentNumbersOfBackwardOperatorsAreNotToldApart) {
  for (const int more : {0, 1}) {  // which of the two has two
    ExampleGraph example;
    const NodeEntry shared = example.Variable("shared", {4, 4}, "parameter");
    std::vector<NodeEntry> forward;
    for (const std::string name : {"a", "b"}) {
      const NodeEntry x = example.Variable(name + "_x", {4, 4}, "data");
      forward.push_back(example.MatMul(name + "_y", x, shared));
      example.Head(forward.back(), "output");
    }
    const auto backward = [&](const std::string& name, NodeEntry of) {
      const NodeEntry given = example.Variable(name + "_given", {4, 4}, "data");
      const NodeEntry added = example.Elementwise(name, {given}, "_backward_copy");
      example.After(added, of);
      example.Head(added, "gradient:shared");
    };
    backward("one", forward[1 - more]);
    backward("two", forward[more]);
    backward("second", forward[more]);
    const Aligned g(example);
    EXPECT_TRUE(g.Correspond("a_y", "b_y"));
    EXPECT_FALSE(g.Correspond("one", "two")) << more;
    EXPECT_FALSE(g.Correspond("one", "second")) << more;
  }
}

}  // namespace
}  // namespace tofu
