#include "passes/schedule/segments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fetch/node_names.h"
#include "passes/partition/graph_builder.h"
#include "support/built_nodes.h"

namespace tofu {
namespace {

// The names of the operators of each segment.
using Names = std::vector<std::vector<std::string>>;

class Segments : public testing::Test {
 protected:
  GraphBuilder* builder() { return &builder_; }
  NodeEntry Var(const std::string& name, int worker) {
    return Variable(&builder_, name, worker);
  }
  NodeEntry Op(const std::string& name, const std::vector<NodeEntry>& inputs) {
    return Operator(&builder_, "tanh", name, inputs);
  }
  // An operator of another worker than its first input's.
  NodeEntry OpOn(int worker, const std::string& op, const std::string& name,
                 const std::vector<NodeEntry>& inputs) {
    return Add(op, name, inputs, {8}, worker);
  }
  NodeEntry Add(const std::string& op, const std::string& name,
                const std::vector<NodeEntry>& inputs, const Shape& shape,
                int worker = 0) {
    Node node;
    node.op = op;
    node.name = name;
    node.inputs = inputs;
    return {builder_.Add(std::move(node), worker, {shape}, {0}), 0};
  }
  // A fetch that reads other workers' tiles in place.
  NodeEntry Fetch(int worker, const std::string& name,
                  const std::vector<NodeEntry>& inputs) {
    const NodeEntry fetch = OpOn(worker, kMultiFetchOp, name, inputs);
    builder_.graph().nodes[fetch.node].attrs[kDirectAttr] = "1";
    return fetch;
  }

  Names Of(const std::vector<NodeEntry>& heads) { return Of(heads, &FindSegments); }
  Names StockOf(const std::vector<NodeEntry>& heads) {
    return Of(heads, &FindStockSegments);
  }

 private:
  Names Of(const std::vector<NodeEntry>& heads,
           std::vector<NodeRange> (*find)(const BoundGraph&)) {
    builder_.graph().heads = heads;
    const BoundGraph bound = OrderAsBound(builder_.graph(), builder_.node_workers());
    Names names;
    for (NodeRange each : find(bound)) {
      names.emplace_back();
      for (int node = each.begin; node < each.end; ++node) {
        const Node& n = bound.graph.nodes[node];
        if (!n.is_variable()) names.back().push_back(n.name);
      }
    }
    return names;
  }

  GraphBuilder builder_;
};

TEST_F(Segments, JoinOperatorsOfAWorkerInARow) {
  const NodeEntry b = Op("b", {Op("a", {Var("x", 0)})});
  const NodeEntry c = Op("c", {b, Var("y", 0)});
  EXPECT_EQ(Of({c}), (Names{{"a", "b", "c"}}));
}

TEST_F(Segments, OneOperatorIsNone) { EXPECT_EQ(Of({Op("a", {Var("x", 0)})}), Names{}); }

TEST_F(Segments, EndWhereAnotherWorkerBegins) {
  const NodeEntry b = Op("b", {Op("a", {Var("x", 0)})});
  const NodeEntry d = Op("d", {Op("c", {Var("y", 1)})});
  EXPECT_EQ(Of({b, d}), (Names{{"a", "b"}, {"c", "d"}}));
}

// Operators before a fetch do not wait for it; operators after it do in any case.
TEST_F(Segments, BeginAtAFetch) {
  const NodeEntry b = Op("b", {Op("a", {Var("x", 0)})});
  const NodeEntry fetch = Fetch(0, "fetch", {Var("y", 1)});
  EXPECT_EQ(Of({Op("d", {Op("c", {b, fetch})})}),
            (Names{{"a", "b"}, {"fetch", "c", "d"}}));
}

// The first fetch need not wait for the second one's inputs.
TEST_F(Segments, BeginAtEveryFetch) {
  const NodeEntry y = Var("y", 1);
  const NodeEntry first = Fetch(0, "first", {y});
  const NodeEntry second = Fetch(0, "second", {y, Var("x", 0)});
  EXPECT_EQ(Of({Op("a", {second, first})}), (Names{{"first", "a"}}));
}

TEST_F(Segments, EndWhereSomethingArrives) {
  const NodeEntry y = Op("y", {Var("v", 1)});
  const NodeEntry b = Op("b", {Op("a", {Var("x", 0)})});
  const NodeEntry d = Op("d", {OpOn(0, "tanh", "c", {b, y})});
  EXPECT_EQ(Of({d}), (Names{{"a", "b"}, {"c", "d"}}));
}

// `c` needs no tensor that arrives later than the input of `a`.
TEST_F(Segments, GoOnWithWhatWaitsForLess) {
  const NodeEntry y = Op("y", {Var("v", 1)});
  const NodeEntry b = Op("b", {OpOn(0, "tanh", "a", {y})});
  const NodeEntry d = Op("d", {Op("c", {Var("x", 0)})});
  EXPECT_EQ(Of({b, d}), (Names{{"a", "b", "c", "d"}}));
}

// The operators read 512 KiB and write as much.
TEST_F(Segments, HaveSmallOperators) {
  const NodeEntry x = Add("", "x", {}, {1 << 17});
  const NodeEntry b = Add("tanh", "b", {Add("tanh", "a", {x}, {1 << 17})}, {1 << 17});
  EXPECT_EQ(Of({b}), (Names{{"a", "b"}}));
}

// With one more element, `b` is large, and other operators do not wait for it.
TEST_F(Segments, HaveNoLargeOperators) {
  const NodeEntry x = Add("", "x", {}, {1 << 17});
  const NodeEntry b =
      Add("tanh", "b", {Add("tanh", "a", {x}, {1 << 17})}, {(1 << 17) + 1});
  EXPECT_EQ(Of({Op("d", {Op("c", {b})})}), (Names{{"c", "d"}}));
}

// Only `c` needs the tensor that arrives, but all wait for it.
TEST_F(Segments, OfTheFrameworkReachFromCopyToCopy) {
  const NodeEntry y = Op("y", {Var("v", 1)});
  const NodeEntry b = Op("b", {Op("a", {Var("x", 0)})});
  const NodeEntry c = OpOn(0, "tanh", "c", {y, b});
  EXPECT_EQ(StockOf({c}), (Names{{"a", "b", "c"}}));
  EXPECT_EQ(Of({c}), (Names{{"a", "b"}}));
}

TEST_F(Segments, OfTheFrameworkAreOnOneDevice) {
  const NodeEntry a = Op("a", {Var("x", 0)});
  const NodeEntry b = Op("b", {Var("v", 1)});
  EXPECT_EQ(StockOf({a, b}), Names{});
}

TEST_F(Segments, OfTheFrameworkHaveFifteenOperators) {
  NodeEntry last = Var("x", 0);
  for (int i = 0; i < 18; ++i) last = Op("n" + std::to_string(i), {last});
  const Names found = StockOf({last});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].size(), 15U);
  EXPECT_EQ(found[1], (std::vector<std::string>{"n15", "n16", "n17"}));
}

}  // namespace
}  // namespace tofu
