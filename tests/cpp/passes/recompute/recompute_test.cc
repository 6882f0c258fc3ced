#include "passes/recompute/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "graph/lives/memory_order.h"
#include "graph/lives/repeats.h"
#include "graph/lives/tensor_lives.h"
#include "passes/coarsen/coalesce.h"
#include "passes/coarsen/group.h"
#include "support/example_graphs.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

Recomputed Least(const Graph& graph, const StrategyTable& table) {
  return RecomputeActivations(graph, table,
                              {std::vector<int64_t>(graph.nodes.size(), 1), 0});
}

// A chain of sums and products with its gradient; forward operators that are not in
// `again` have a negative cost.
struct Chain {
  MockGraph mock{0};
  std::vector<int64_t> costs;
};

// Chains have views if asked to: sums of one term, which read variables, too.
bool IsView(const Node& node) { return node.op == "add" && node.inputs.size() == 1; }

NodeEntry View(MockGraph* mock, NodeEntry entry) {
  const NodeEntry view = mock->Elementwise("add", {entry});
  mock->table.rows[mock->table.node_rows[view.node]].views = true;
  return view;
}

Chain RandomChain(int length, std::mt19937* random, bool views = false) {
  const auto draw = [&](int most) {
    return std::uniform_int_distribution<int>(0, most)(*random);
  };
  Chain chain;
  MockGraph& mock = chain.mock;
  std::vector<NodeEntry> made = {mock.Variable("x", {4, 6})};
  const NodeEntry gradient = mock.Variable("g", {4, 6});
  mock.graph.nodes[gradient.node].attrs["__tofu_role__"] = "head_grad:0";
  for (int i = 0; i < length; ++i) {
    if (views && draw(1) == 0) made.push_back(View(&mock, made.back()));
    const NodeEntry other =
        made[std::max(0, static_cast<int>(made.size()) - 1 - draw(3))];
    made.push_back(mock.Elementwise(draw(1) == 0 ? "mul" : "add", {made.back(), other}));
  }
  mock.Head(made.back(), "output");
  NodeEntry back = gradient;
  for (size_t i = made.size() - 1; i-- > 0;) {
    back = mock.Elementwise(draw(3) == 0 ? "add" : "mul", {back, made[i]});
    if (draw(3) == 0) mock.Head(back, "gradient:w" + std::to_string(i));
  }
  mock.Head(back, "gradient:x");
  for (size_t node = 0; node < mock.graph.nodes.size(); ++node) {
    chain.costs.push_back(draw(6) == 0 ? -1 : draw(4));
  }
  return chain;
}

// The number of the tensor in whose memory a tensor is.
int MemoryOf(const Graph& graph, NodeEntry entry) {
  while (IsView(graph.nodes[entry.node])) entry = graph.nodes[entry.node].inputs[0];
  return graph.entry_id(entry);
}

// The peak, over the backward pass, of the bytes of forward tensors and repeats.
int64_t MostAlive(const Graph& graph, const std::set<std::string>& forward) {
  const TensorLives lives = FindTensorLives(graph);
  std::vector<int> last(static_cast<size_t>(graph.num_entries()), -1);
  for (size_t place = 0; place < lives.order.size(); ++place) {
    for (NodeEntry input : graph.nodes[lives.order[place]].inputs) {
      last[MemoryOf(graph, input)] = static_cast<int>(place);
    }
  }
  int64_t most = 0;
  std::vector<int> written;
  for (size_t place = 0; place < lives.order.size(); ++place) {
    const int node = lives.order[place];
    const Node& n = graph.nodes[node];
    const bool counts = forward.count(n.name) > 0 || IsRepeat(n);
    for (int i = 0; counts && i < n.num_outputs; ++i) {
      const int entry = graph.entry_id({node, i});
      if (lives.keep[entry] == Keep::kUntilRead && !IsView(n)) written.push_back(entry);
    }
    if (forward.count(n.name) > 0 || n.is_variable()) continue;
    int64_t alive = 0;
    for (int entry : written) {
      if (last[entry] >= static_cast<int>(place)) {
        alive += NumElements(graph.shapes[entry]) * DtypeBytes(graph.dtypes[entry]);
      }
    }
    most = std::max(most, alive);
  }
  return most;
}

std::set<std::string> ForwardNames(const Graph& graph) {
  std::set<std::string> names;
  std::vector<bool> needed(graph.nodes.size(), false);
  needed[graph.heads[0].node] = true;
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!needed[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) needed[input.node] = true;
    if (!graph.nodes[node].is_variable()) names.insert(graph.nodes[node].name);
  }
  return names;
}

TEST(Recompute, ChangesNoValueAndKeepsWhatItSays) {
  int repeated = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Chain chain =
        RandomChain(2 + static_cast<int>(seed % 12), &random, seed >= 100);
    const Graph& graph = chain.mock.graph;
    const auto values = RandomValues(graph, &random);
    const std::vector<Array> before = RunGraph(graph, values);
    for (const int64_t limit : {0, 300, 500}) {
      const Recomputed recomputed =
          RecomputeActivations(graph, chain.mock.table, {chain.costs, limit});
      const std::vector<Array> after = RunGraph(recomputed.graph, values);
      ASSERT_EQ(recomputed.graph.heads.size(), graph.heads.size());
      for (size_t h = 0; h < graph.heads.size(); ++h) {
        const Array& one = before[graph.entry_id(graph.heads[h])];
        const Array& other = after[recomputed.graph.entry_id(recomputed.graph.heads[h])];
        ASSERT_EQ(one.data, other.data) << "seed " << seed << ", head " << h;
      }
      for (const Node& node : recomputed.graph.nodes) {
        if (!IsRepeat(node)) continue;
        ASSERT_EQ(node.attrs.at(kRepeatsAttr),
                  recomputed.graph.nodes[node.control_deps.at(0)].name);
      }
      EXPECT_LE(MostAlive(recomputed.graph, ForwardNames(graph)), recomputed.bytes)
          << "seed " << seed << ", limit " << limit;
      repeated += recomputed.num_repeated;
    }
  }
  EXPECT_GT(repeated, 200) << "the chains must be worth it";
}

TEST(Recompute, WhatMustNotRunAgainRunsOnce) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const Chain chain = RandomChain(12, &random);
    const Recomputed recomputed =
        RecomputeActivations(chain.mock.graph, chain.mock.table, {chain.costs, 0});
    for (const Node& node : recomputed.graph.nodes) {
      if (!IsRepeat(node)) continue;
      for (size_t i = 0; i < chain.costs.size(); ++i) {
        if (chain.mock.graph.nodes[i].name == node.attrs.at(kRepeatsAttr)) {
          EXPECT_GE(chain.costs[i], 0) << "seed " << seed << ": " << node.name;
        }
      }
    }
  }
}

TEST(Recompute, RandomAndUnknownOperatorsRunOnce) {
  ExampleGraph g;
  const NodeEntry x = g.Variable("x", {8, 8}, "data");
  const NodeEntry a = g.Elementwise("a", {x});
  const NodeEntry b = g.Dropout("b", a);
  const NodeEntry c = g.Opaque("c", {b}, {8, 8});
  const NodeEntry d = g.Elementwise("d", {c});
  const NodeEntry y = g.Elementwise("y", {d});
  g.Head(y, "output");
  NodeEntry back = g.Variable("g", {8, 8}, "head_grad:0");
  for (NodeEntry saved : {d, c, b, a}) {
    back = g.Elementwise("back" + std::to_string(saved.node), {back, saved}, "times");
  }
  g.Head(back, "gradient:x");
  const Recomputed recomputed = Least(g.graph(), g.table());
  std::set<std::string> again;
  for (const Node& node : recomputed.graph.nodes) {
    if (IsRepeat(node)) again.insert(node.attrs.at(kRepeatsAttr));
  }
  EXPECT_EQ(again.count("b"), 0u);
  EXPECT_EQ(again.count("c"), 0u);
  EXPECT_EQ(again, (std::set<std::string>{"a"})) << "d is needed at once";
}

TEST(Recompute, ARepetitionRunsLateAndBelongsToWhatItRepeats) {
  ExampleGraph mlp = Mlp(64, 32, 12);
  const Recomputed recomputed = Least(mlp.graph(), mlp.table());
  ASSERT_GT(recomputed.num_repeated, 3);
  EXPECT_LT(recomputed.bytes, recomputed.saved_bytes * 3 / 4);
  const Graph& graph = recomputed.graph;
  ASSERT_EQ(recomputed.table.node_rows.size(), graph.nodes.size());
  const Groups groups = GroupForwardBackward(graph, recomputed.table);
  const CoarseGraph coarse = Coalesce(graph, recomputed.table, groups);
  const std::vector<int> order = MemoryOrder(graph);
  std::vector<int> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
  int first_late = graph.num_nodes();
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].name == "fc11_dz") first_late = places[node];
  }
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!IsRepeat(graph.nodes[node])) continue;
    const int original = graph.nodes[node].control_deps[0];
    EXPECT_GT(places[node], first_late) << graph.nodes[node].name;
    EXPECT_EQ(groups.op_group[node], original);
    EXPECT_EQ(groups.tensor_group[graph.entry_id({node, 0})],
              graph.entry_id({original, 0}));
    EXPECT_EQ(coarse.tensor_class[graph.entry_id({node, 0})],
              coarse.tensor_class[graph.entry_id({original, 0})]);
    EXPECT_EQ(coarse.op_class[node], coarse.op_class[original]);
  }
  const Graph again = ReadGraph(WriteGraph(graph));
  for (int node = 0; node < graph.num_nodes(); ++node) {
    EXPECT_EQ(IsRepeat(again.nodes[node]), IsRepeat(graph.nodes[node]));
  }
}

TEST(Recompute, LeavesAGraphWithoutBackwardPassOrWithMemoryToSpare) {
  ExampleGraph forward = Residual(8, 8, 3);
  EXPECT_EQ(Least(forward.graph(), forward.table()).num_repeated, 0);
  ExampleGraph mlp = Mlp(64, 32, 12);
  const std::vector<int64_t> costs(mlp.graph().nodes.size(), 1);
  const Recomputed recomputed =
      RecomputeActivations(mlp.graph(), mlp.table(), {costs, int64_t{1} << 40});
  EXPECT_EQ(recomputed.num_repeated, 0);
  EXPECT_EQ(recomputed.saved_bytes, recomputed.bytes);
  EXPECT_EQ(GraphHash(recomputed.graph), GraphHash(mlp.graph()));
}

}  // namespace
}  // namespace tofu
