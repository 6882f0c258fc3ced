#include "passes/memory/executor_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "passes/partition/graph_builder.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

NodeEntry AddVariable(GraphBuilder* builder, const std::string& name, int worker,
                      const Shape& shape, int dtype = 0) {
  Node variable;
  variable.name = name;
  return {builder->Add(std::move(variable), worker, {shape}, {dtype}), 0};
}

struct Ordered {
  Graph graph;
  BoundOrder order;
};

Ordered Bound(GraphBuilder* builder, const std::vector<NodeEntry>& heads) {
  builder->graph().heads = heads;
  const Graph& graph = builder->graph();
  return {graph, OrderOf(graph, builder->node_workers(), heads)};
}

ExecutorMemory PlanExecutorMemory(const Ordered& bound, const MemoryTable& table,
                                  const ExecutorMemoryOptions& options) {
  return PlanExecutorMemory(bound.graph, bound.order, table, options);
}

MemoryTable NoRules(GraphBuilder& builder) {
  const size_t num_nodes = builder.graph().nodes.size();
  return {{}, std::vector<int>(num_nodes, -1)};
}

// x -> a -> b -> c, each of 16 bytes: two blocks alternate.
TEST(ExecutorMemory, ReusesABlockWhoseReadersHaveRun) {
  GraphBuilder builder;
  NodeEntry at = AddVariable(&builder, "x", 0, {4});
  for (const char* name : {"a", "b", "c"}) at = builder.Copy(name, 0, at);
  const Ordered bound = Bound(&builder, {at});
  MemoryTable table = NoRules(builder);
  ExecutorMemoryOptions options;
  EXPECT_EQ(PlanExecutorMemory(bound, table, options).planned_bytes, 32);
  EXPECT_EQ(PlanExecutorMemory(bound, table, options).live_per_worker,
            (std::vector<int64_t>{32}));
  options.match_range = 0;
  EXPECT_EQ(PlanExecutorMemory(bound, table, options).planned_bytes, 48);
  // In place, one block is enough; the caller's x is not written to.
  table.rules = {{{{0, 0, false}}, {}}};
  table.node_rules = {-1, 0, 0, 0};
  EXPECT_EQ(PlanExecutorMemory(bound, table, options).planned_bytes, 16);
  // c is written to the caller's array.
  options.external_heads = {1};
  EXPECT_EQ(PlanExecutorMemory(bound, NoRules(builder), options).planned_bytes, 32);
}

TEST(ExecutorMemory, WritesInPlaceOfAReadTensorOnlyTheSame) {
  GraphBuilder builder;
  const NodeEntry x = AddVariable(&builder, "x", 0, {4});
  const NodeEntry a = builder.Copy("a", 0, x);
  const NodeEntry b = builder.Copy("b", 0, a);
  const Ordered bound = Bound(&builder, {b, a});
  MemoryTable table = NoRules(builder);
  table.node_rules[b.node] = 0;
  table.rules = {{{{0, 0, false}}, {}}};
  EXPECT_EQ(PlanExecutorMemory(bound, table, {}).planned_bytes, 32);
  table.rules = {{{{0, 0, true}}, {}}};
  EXPECT_EQ(PlanExecutorMemory(bound, table, {}).planned_bytes, 16);
}

// The rule allows the output to replace the input; sizes and readers must allow it, too.
TEST(ExecutorMemory, WritesInPlaceOnlyWhereBothHaveAsManyBytes) {
  constexpr int kFloat32 = 0;
  constexpr int kFloat64 = 1;
  constexpr int kInt32 = 4;
  const auto planned = [&](int dtype, bool identity) {
    GraphBuilder builder;
    const NodeEntry a =
        builder.Copy("a", 0, AddVariable(&builder, "x", 0, {4}, kFloat32));
    const NodeEntry b = builder.Cast("b", 0, a, dtype);
    MemoryTable table = NoRules(builder);
    table.node_rules[b.node] = 0;
    table.rules = {{{{0, 0, identity}}, {}}};
    return PlanExecutorMemory(Bound(&builder, {b}), table, {}).planned_bytes;
  };
  EXPECT_EQ(planned(kFloat32, false), 16);
  EXPECT_EQ(planned(kInt32, false), 16) << "another type of the same size";
  EXPECT_EQ(planned(kFloat64, false), 32);
  EXPECT_EQ(planned(kFloat64, true), 32);
}

TEST(ExecutorMemory, ATensorInPlaceOfAnotherOneTakesItsMemoryAtOneMoment) {
  GraphBuilder builder;
  NodeEntry at = AddVariable(&builder, "x", 0, {4});
  for (const char* name : {"a", "b"}) at = builder.Copy(name, 0, at);
  const Ordered bound = Bound(&builder, {at});
  MemoryTable table = NoRules(builder);
  table.node_rules[at.node] = 0;
  table.rules = {{{{0, 0, false}}, {}}};
  const ExecutorMemory memory = PlanExecutorMemory(bound, table, {});
  ASSERT_EQ(memory.lives.size(), 2);
  for (int i : {0, 1}) {
    EXPECT_EQ(memory.lives[i].born, i);
    EXPECT_EQ(memory.lives[i].died, i + 1);
  }
}

TEST(ExecutorMemory, WritesInPlaceOfOneInputOnlyOnce) {
  for (const bool identity : {false, true}) {
    GraphBuilder builder;
    const NodeEntry a = builder.Copy("a", 0, AddVariable(&builder, "x", 0, {4}));
    Node pair;
    pair.op = "pair";
    pair.num_outputs = 2;
    pair.inputs = {a};
    const int node = builder.Add(std::move(pair), 0, {{4}, {4}}, {0, 0});
    MemoryTable table = NoRules(builder);
    table.node_rules[node] = 0;
    table.rules = {{{{0, 1, identity}, {0, 0, identity}}, {}}};
    const Ordered bound = Bound(&builder, {{node, 0}, {node, 1}});
    EXPECT_EQ(PlanExecutorMemory(bound, table, {}).planned_bytes, 32);
  }
}

// If only the shape of an input is read, the input can be freed before it is "read".
TEST(ExecutorMemory, AnIgnoredInputKeepsNothingAlive) {
  GraphBuilder builder;
  const NodeEntry x = AddVariable(&builder, "x", 0, {4});
  const NodeEntry a = builder.Copy("a", 0, x);
  const NodeEntry b = builder.Copy("b", 0, a);
  const NodeEntry c = builder.Copy("c", 0, b);
  const NodeEntry like = builder.Reduce("like", 0, {c, a}, Reducer::kMax);
  const Ordered bound = Bound(&builder, {like});
  MemoryTable table = NoRules(builder);
  EXPECT_EQ(PlanExecutorMemory(bound, table, {}).planned_bytes, 48);
  table.node_rules[like.node] = 0;
  table.rules = {{{}, {1}}};
  EXPECT_EQ(PlanExecutorMemory(bound, table, {}).planned_bytes, 32);
}

TEST(ExecutorMemory, PlansFourBytesAnElementAndAllocatesTheDtypes) {
  GraphBuilder builder;
  constexpr int kFloat64 = 1;
  const NodeEntry x = AddVariable(&builder, "x", 1, {4}, kFloat64);
  const Ordered bound = Bound(&builder, {builder.Copy("a", 1, x)});
  ExecutorMemoryOptions options;
  options.num_workers = 2;
  const ExecutorMemory memory = PlanExecutorMemory(bound, NoRules(builder), options);
  EXPECT_EQ(memory.planned_bytes, 16);
  EXPECT_EQ(memory.bytes_per_worker, (std::vector<int64_t>{0, 32}));
}

// The tensors alive at a moment.
std::vector<LiveTensor> AliveAt(const ExecutorMemory& memory, int moment) {
  std::vector<LiveTensor> alive;
  for (const LiveTensor& live : memory.lives) {
    if (live.born <= moment && moment < live.died) alive.push_back(live);
  }
  return alive;
}

int64_t BytesOf(const std::vector<LiveTensor>& tensors) {
  int64_t bytes = 0;
  for (const LiveTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

TEST(ExecutorMemory, NamesWhatIsAliveAtTheWorstMoment) {
  GraphBuilder builder;
  const NodeEntry small = builder.Copy("small", 0, AddVariable(&builder, "x", 0, {4}));
  NodeEntry at = AddVariable(&builder, "y", 0, {16});
  for (const char* name : {"a", "b", "c"}) at = builder.Copy(name, 0, at);
  builder.graph().nodes[at.node].control_deps = {small.node};
  const Ordered bound = Bound(&builder, {at, small});
  const ExecutorMemory memory = PlanExecutorMemory(bound, NoRules(builder), {});
  EXPECT_EQ(memory.live_per_worker, (std::vector<int64_t>{64 + 64 + 16}));
  const auto names = [&](int moment) {
    std::map<std::string, int64_t> sizes;
    for (const LiveTensor& live : AliveAt(memory, moment)) {
      EXPECT_EQ(live.head, live.node == at.node ? 0 : live.node == small.node ? 1 : -1);
      sizes[builder.graph().nodes[live.node].name] = live.bytes;
    }
    return sizes;
  };
  using Sizes = std::map<std::string, int64_t>;
  EXPECT_EQ(names(1), (Sizes{{"a", 64}, {"b", 64}}));
  EXPECT_EQ(names(3), (Sizes{{"b", 64}, {"c", 64}, {"small", 16}}));
}

TEST(ExecutorMemory, CountsWhatIsAliveWhileEachNodeOfTheFullestWorkerRuns) {
  GraphBuilder builder;
  const NodeEntry other = builder.Copy("other", 1, AddVariable(&builder, "x", 1, {4}));
  NodeEntry at = AddVariable(&builder, "y", 0, {16});
  for (const char* name : {"a", "b", "c"}) at = builder.Copy(name, 0, at);
  const Ordered bound = Bound(&builder, {other, at});
  ExecutorMemoryOptions options;
  options.num_workers = 2;
  const ExecutorMemory memory = PlanExecutorMemory(bound, NoRules(builder), options);
  EXPECT_EQ(memory.peak_worker, 0);
  std::vector<std::pair<std::string, int64_t>> moments;
  for (size_t i = 0; i < memory.moments.size(); ++i) {
    moments.emplace_back(builder.graph().nodes[memory.moments[i]].name,
                         BytesOf(AliveAt(memory, static_cast<int>(i))));
  }
  // While b runs, a is alive, too; tensors of the other worker do not count.
  EXPECT_EQ(moments, (std::vector<std::pair<std::string, int64_t>>{
                         {"a", 64}, {"b", 128}, {"c", 128}}));
}

// A free block of 64 bytes can hold 4 bytes with a match range of 16, but not of 2.
TEST(ExecutorMemory, TakesBlocksWithinTheMatchRange) {
  GraphBuilder builder;
  const NodeEntry x = AddVariable(&builder, "x", 0, {16});
  const NodeEntry y = AddVariable(&builder, "y", 0, {1});
  const NodeEntry a = builder.Copy("a", 0, x);
  const NodeEntry b = builder.Slice("b", 0, a, {{0}, {1}});
  const NodeEntry c = builder.Copy("c", 0, y);
  builder.graph().nodes[c.node].control_deps = {b.node};
  const Ordered bound = Bound(&builder, {b, c});
  ExecutorMemoryOptions options;
  options.match_range = 16;
  EXPECT_EQ(PlanExecutorMemory(bound, NoRules(builder), options).planned_bytes, 68);
  options.match_range = 2;
  EXPECT_EQ(PlanExecutorMemory(bound, NoRules(builder), options).planned_bytes, 72);
  options.match_range = 16;
  options.search_match_range = true;
  EXPECT_EQ(PlanExecutorMemory(bound, NoRules(builder), options).match_range, 16);
}

TEST(ExecutorMemory, NeverPlansLessThanWhatLives) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const std::vector<int> workers(mock.graph.nodes.size(), 0);
    const MemoryTable none = {{}, std::vector<int>(mock.graph.nodes.size(), -1)};
    const Ordered bound = {mock.graph, OrderOf(mock.graph, workers, mock.graph.heads)};
    for (int range : {0, 1, 16}) {
      ExecutorMemoryOptions options;
      options.match_range = range;
      const ExecutorMemory memory = PlanExecutorMemory(bound, none, options);
      ASSERT_GE(memory.bytes_per_worker[0], memory.live_per_worker[0]) << "seed " << seed;
      int64_t peak = 0;
      for (size_t i = 0; i < memory.moments.size(); ++i) {
        peak = std::max(peak, BytesOf(AliveAt(memory, static_cast<int>(i))));
      }
      ASSERT_EQ(peak, memory.live_per_worker[0]) << "seed " << seed;
    }
  }
}

TEST(MemoryTable, SaysWhatIsWrong) {
  const MockGraph mock = [] {
    MockGraph one;
    const NodeEntry x = one.Variable("x", {4});
    one.Head(one.Elementwise("mul", {x, x}), "output");
    return one;
  }();
  const auto message = [&](const MemoryTable& table) -> std::string {
    try {
      CheckMemoryTable(table, mock.graph);
    } catch (const UserError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(message({{{{{1, 0, false}}, {}}}, {-1, 0}}), "none");
  const char* const wanted = "expected a rule for its 2 inputs and 1 outputs";
  EXPECT_NE(message({{{{{2, 0, false}}, {}}}, {-1, 0}}).find(wanted), std::string::npos);
  EXPECT_NE(message({{{{{0, 1, false}}, {}}}, {-1, 0}}).find(wanted), std::string::npos);
  EXPECT_NE(message({{{{}, {2}}}, {-1, 0}}).find(wanted), std::string::npos);
  EXPECT_NE(message({{{{{0, 0, false}}, {}}}, {0, 0}}).find("node x"), std::string::npos);
  EXPECT_NE(message({{}, {-1, 0}}).find("found rule 0"), std::string::npos);
  EXPECT_NE(message({{}, {-1}}).find("found rules for 1 nodes"), std::string::npos);
}

}  // namespace
}  // namespace tofu
