#include "passes/simulate/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"
#include "passes/partition/graph_builder.h"
#include "passes/simulate/operations.h"
#include "support/built_nodes.h"
#include "support/example_machine.h"

namespace tofu {
namespace {

// A graph whose operators all take as many seconds as their call's FLOPs.
class Case {
 public:
  explicit Case(int workers) : machine_(ExampleMachine(workers)), workers_(workers) {}

  GraphBuilder* builder() { return &builder_; }
  Machine* machine() { return &machine_; }
  SimulationOptions* options() { return &options_; }
  MemoryTable* table() { return &table_; }
  const BoundGraph& bound() const { return bound_; }
  const ExecutorMemory& memory() const { return memory_; }

  // `works`: per call, in the order of the calls' first nodes.
  Simulation Run(const std::vector<NodeEntry>& heads, const std::vector<Work>& works) {
    builder_.graph().heads = heads;
    const Graph& graph = builder_.graph();
    const BoundOrder order = OrderOf(graph, builder_.node_workers(), heads);
    bound_ = InOrder(graph, order);
    if (table_.node_rules.empty())
      table_.node_rules.assign(builder_.graph().nodes.size(), -1);
    ExecutorMemoryOptions options;
    options.num_workers = workers_;
    memory_ = PlanExecutorMemory(graph, order, table_, options);
    const OperatorCalls calls = FindOperatorCalls(builder_.graph());
    return Simulate(bound_, table_, memory_, calls, works, machine_, options_);
  }

  // The number of the operation of the node called `name`.
  int Of(const Simulation& simulation, const std::string& name) const {
    for (int node = 0; node < bound_.graph.num_nodes(); ++node) {
      if (bound_.graph.nodes[node].name == name)
        return simulation.operations.node_operations[node];
    }
    ADD_FAILURE() << "no node " << name;
    return 0;
  }
  const Ran& RanOf(const Simulation& simulation, const std::string& name) const {
    return simulation.execution.ran[Of(simulation, name)];
  }

 private:
  GraphBuilder builder_;
  Machine machine_;
  SimulationOptions options_ = {4};
  int workers_;
  MemoryTable table_;
  BoundGraph bound_;
  ExecutorMemory memory_;
};

const Work kOneSecond = {OperatorKind::kElementwise, 1, 0};

TEST(OperatorCalls, NodesThatCallAnOperatorAlikeShareACall) {
  GraphBuilder builder;
  const NodeEntry x = Variable(&builder, "x", 0);
  const NodeEntry a = Operator(&builder, "tanh", "a", {x});
  Operator(&builder, "tanh", "b", {a});
  Operator(&builder, "exp", "c", {a});
  Operator(&builder, kMultiFetchOp, "p", {a});
  builder.graph().nodes[3].attrs["scalar"] = "2";
  builder.graph().nodes[3].op = "tanh";
  const OperatorCalls calls = FindOperatorCalls(builder.graph());
  EXPECT_EQ(calls.node_calls, (std::vector<int>{-1, 0, 0, 1, -1}));
  EXPECT_EQ(calls.nodes, (std::vector<int>{1, 3}));
  builder.graph().shapes[2] = {4, 2};
  EXPECT_EQ(FindOperatorCalls(builder.graph()).nodes.size(), 3u);
  builder.graph().shapes[2] = {8};
  builder.graph().dtypes[2] = 1;
  EXPECT_EQ(FindOperatorCalls(builder.graph()).nodes.size(), 3u);
}

TEST(Simulate, AChainTakesTheSumOfItsOperators) {
  Case chain(1);
  const NodeEntry x = Variable(chain.builder(), "x", 0);
  const NodeEntry a = Operator(chain.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(chain.builder(), "exp", "b", {a});
  const Simulation simulation =
      chain.Run({b}, {kOneSecond, {OperatorKind::kElementwise, 3, 0}});
  EXPECT_DOUBLE_EQ(simulation.execution.step_s, 4);
  EXPECT_DOUBLE_EQ(simulation.workers[0].busy_s, 4);
  EXPECT_DOUBLE_EQ(simulation.workers[0].waiting_s, 0);
  EXPECT_DOUBLE_EQ(simulation.workers[0].spent.compute_s, 4);
  EXPECT_EQ(simulation.path.operations, (std::vector<int>{0, 1}));
  EXPECT_DOUBLE_EQ(simulation.path.spent.compute_s, 4);
  EXPECT_DOUBLE_EQ(simulation.path.script_s, 0);
  EXPECT_EQ(simulation.workers[0].static_bytes, 32);
  EXPECT_EQ(simulation.workers[0].allocated_bytes, 96);
  // a, of 32 bytes, is alive during b.
  EXPECT_EQ(simulation.workers[0].live_bytes, (std::vector<int64_t>{32, 64, 64, 64}));
}

TEST(Simulate, MemoryIsNotWrittenBeforeItsLastReaderHasRun) {
  // c takes over a's block, which the slow b on the other worker's copy still reads: the
  // copy is pushed before, so c waits for it.
  Case reuse(1);
  const NodeEntry x = Variable(reuse.builder(), "x", 0);
  const NodeEntry a = Operator(reuse.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(reuse.builder(), "exp", "b", {a});
  const NodeEntry c = Operator(reuse.builder(), "sin", "c", {x});
  reuse.machine()->device.threads = 2;
  reuse.machine()->host.cores = 4;
  const std::vector<Work> works = {
      kOneSecond, {OperatorKind::kElementwise, 5, 0}, kOneSecond};
  const Simulation simulation = reuse.Run({b, c}, works);
  EXPECT_EQ(reuse.memory().bytes_per_worker[0], 64);
  EXPECT_DOUBLE_EQ(reuse.RanOf(simulation, "c").begin_s, 6);
  EXPECT_EQ(reuse.RanOf(simulation, "c").cause, reuse.Of(simulation, "b"));
}

TEST(Simulate, ControlDependenciesOnlyOrder) {
  Case ordered(2);
  const NodeEntry x = Variable(ordered.builder(), "x", 0);
  const NodeEntry y = Variable(ordered.builder(), "y", 1);
  const NodeEntry a = Operator(ordered.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(ordered.builder(), "tanh", "b", {y});
  ordered.builder()->graph().nodes[b.node].control_deps = {a.node};
  const Simulation simulation = ordered.Run({a, b}, {kOneSecond});
  EXPECT_DOUBLE_EQ(simulation.execution.step_s, 1);
}

TEST(Simulate, ACopyRunsWhereTheTensorComesFrom) {
  Case crossing(2);
  const NodeEntry x = Variable(crossing.builder(), "x", 0);
  const NodeEntry a = Operator(crossing.builder(), "tanh", "a", {x});
  const NodeEntry b = crossing.builder()->Copy("b", 1, a);
  const Simulation simulation =
      crossing.Run({b}, {kOneSecond, {OperatorKind::kMovement, 2, 0}});
  // One second, 32 bytes at 10 a second, then two seconds on the other worker.
  EXPECT_DOUBLE_EQ(simulation.execution.step_s, 6.2);
  EXPECT_DOUBLE_EQ(simulation.workers[0].busy_s, 4.2);
  EXPECT_DOUBLE_EQ(simulation.workers[0].spent.link_s, 3.2);
  EXPECT_DOUBLE_EQ(simulation.workers[1].waiting_s, 4.2);
  ASSERT_EQ(simulation.execution.links.size(), 1u);
  EXPECT_DOUBLE_EQ(simulation.execution.links[0].bytes, 32);
}

TEST(Simulate, WhatOnlyMovesInPlaceTakesNoTime) {
  for (const bool in_place : {true, false}) {
    Case moved(1);
    const NodeEntry x = Variable(moved.builder(), "x", 0);
    const NodeEntry a = Operator(moved.builder(), "tanh", "a", {x});
    const NodeEntry b = Operator(moved.builder(), "Reshape", "b", {a});
    moved.table()->rules = {{{{0, 0, true}}, {}}};
    moved.table()->node_rules = {-1, -1, in_place ? 0 : -1};
    const Simulation simulation =
        moved.Run({b}, {kOneSecond, {OperatorKind::kMovement, 0, 64}});
    EXPECT_DOUBLE_EQ(simulation.execution.step_s, in_place ? 1 : 65);
    EXPECT_EQ(simulation.workers[0].live_bytes.back(), in_place ? 32 : 64);
  }
}

TEST(Simulate, AnOutputInPlaceOfItsInputNeedsNoMemory) {
  Case in_place(1);
  const NodeEntry x = Variable(in_place.builder(), "x", 0);
  const NodeEntry a = Operator(in_place.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(in_place.builder(), "exp", "b", {a});
  in_place.table()->rules = {{{{0, 0, false}}, {}}};
  in_place.table()->node_rules = {-1, -1, 0};
  const Simulation simulation = in_place.Run({b}, {kOneSecond, kOneSecond});
  EXPECT_EQ(simulation.workers[0].live_bytes, (std::vector<int64_t>{32, 32, 32, 32}));
}

TEST(Simulate, AFetchReadsItsOwnersTileOverTheLink) {
  Case fetch(2);
  const NodeEntry tile = Variable(fetch.builder(), "tile", 0);
  const NodeEntry own = Variable(fetch.builder(), "own", 1);
  Node region;
  region.op = kMultiFetchOp;
  region.name = "fetch";
  region.inputs = {tile, own};
  region.attrs[kDirectAttr] = "1";
  region.attrs[kSpecAttr] = "dtype=0 shape=16 sources=8;8; pieces=0@0>0:8;1@0>8:8";
  const NodeEntry at = {fetch.builder()->Add(region, 1, {{16}}, {0}), 0};
  const Simulation simulation = fetch.Run({at}, {});
  const Ran& ran = fetch.RanOf(simulation, "fetch");
  EXPECT_DOUBLE_EQ(ran.link_s, 3.2);    // 32 bytes from worker 0
  EXPECT_DOUBLE_EQ(ran.compute_s, 64);  // 32 bytes of its own, read and written
  ASSERT_EQ(simulation.operations.flows.size(), 1u);
  EXPECT_EQ(simulation.operations.flows[0].from, 0);
  EXPECT_EQ(simulation.operations.flows[0].to, 1);
}

TEST(Simulate, EveryPieceOfAFetchComesFromTheWorkerOfItsTile) {
  Case fetch(3);
  Node region;
  for (int owner = 0; owner < 2; ++owner) {
    region.inputs.push_back(
        Variable(fetch.builder(), "tile" + std::to_string(owner), owner));
  }
  region.op = kMultiFetchOp;
  region.name = "fetch";
  region.attrs[kDirectAttr] = "1";
  region.attrs[kSpecAttr] = "dtype=0 shape=24 sources=8;16; pieces=0@0>0:8;1@0>8:16";
  const NodeEntry at = {fetch.builder()->Add(region, 2, {{24}}, {0}), 0};
  const Simulation simulation = fetch.Run({at}, {});
  std::map<int, double> bytes;  // worker -> bytes of its tiles that it sends
  for (const Flow& flow : simulation.operations.flows) {
    EXPECT_EQ(flow.to, 2);
    bytes[flow.from] = std::max(bytes[flow.from], flow.bytes);
  }
  EXPECT_EQ(bytes, (std::map<int, double>{{0, 32}, {1, 64}}));
}

TEST(Simulate, AFetchReadsOthersTilesInPlaceOverTheLinkToo) {
  Case fetch(2);
  const NodeEntry own = Variable(fetch.builder(), "own", 1);
  const NodeEntry tile = Variable(fetch.builder(), "tile", 0);
  Node regions;
  regions.op = kMultiFetchOp;
  regions.name = "fetch";
  regions.inputs = {own, tile, own};
  regions.num_outputs = 2;
  regions.attrs[kDirectAttr] = "1";
  regions.attrs[kSpecAttr] =
      "dtype=0 shape=8 sources=8; pieces=0@0>0:8|"
      "dtype=0 shape=16 sources=8;8; pieces=0@0>0:8;1@0>8:8";
  const NodeEntry at = {fetch.builder()->Add(regions, 1, {{8}, {16}}, {0, 0}), 0};
  const Simulation simulation = fetch.Run({at}, {});
  const Ran& ran = fetch.RanOf(simulation, "fetch");
  EXPECT_DOUBLE_EQ(ran.link_s, 3.2);     // 32 bytes from worker 0
  EXPECT_DOUBLE_EQ(ran.compute_s, 128);  // twice 32 bytes of its own
  ASSERT_EQ(simulation.operations.flows.size(), 1u);
  EXPECT_EQ(simulation.operations.flows[0].from, 0);
}

TEST(Simulate, NeighboursOfADeviceAreOneSegment) {
  Case segments(2);
  *segments.machine() = ExampleGpus(2);
  segments.machine()->device.has_segments = true;
  segments.machine()->device.launch_s = 0.5;
  segments.machine()->device.synchronize_s = 10;
  const NodeEntry x = Variable(segments.builder(), "x", 0);
  const NodeEntry a = Operator(segments.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(segments.builder(), "tanh", "b", {a});
  const NodeEntry c = segments.builder()->Copy("c", 1, b);
  const Simulation simulation = segments.Run({c}, {kOneSecond, kOneSecond});
  EXPECT_EQ(simulation.operations.operations.size(), 3u);  // a and b, the copy, c
  EXPECT_EQ(segments.Of(simulation, "a"), segments.Of(simulation, "b"));
  EXPECT_DOUBLE_EQ(segments.RanOf(simulation, "a").end_s, 13);
  EXPECT_DOUBLE_EQ(simulation.execution.step_s, 13 + 10.5 + 3.2 + 11.5);
  segments.machine()->device.has_segments = false;
  const Simulation apart = segments.Run({c}, {kOneSecond, kOneSecond});
  EXPECT_EQ(apart.operations.operations.size(), 4u);
  EXPECT_DOUBLE_EQ(segments.RanOf(apart, "b").end_s, 23);
}

// `a` waits for the copy that `b` reads only without tofu.
TEST(Simulate, WithoutTofuASegmentWaitsForAllThatArrives) {
  for (bool is_stock : {false, true}) {
    Case mixed(2);
    *mixed.machine() = ExampleGpus(2);
    mixed.machine()->device.has_segments = true;
    mixed.options()->is_stock = is_stock;
    GraphBuilder* builder = mixed.builder();
    const NodeEntry y = Operator(builder, "tanh", "y", {Variable(builder, "v", 1)});
    const NodeEntry a = Operator(builder, "tanh", "a", {Variable(builder, "x", 0)});
    Node sum;
    sum.op = "_plus";
    sum.name = "b";
    sum.inputs = {y, a};
    const NodeEntry b = {builder->Add(std::move(sum), 0, {{8}}, {0}), 0};
    const Simulation simulation = mixed.Run({b}, {kOneSecond, kOneSecond});
    EXPECT_EQ(mixed.Of(simulation, "a") == mixed.Of(simulation, "b"), is_stock);
  }
}

TEST(Simulate, OperatorsOfSeveralDevicesAreNoSegment) {
  Case mixed(2);
  *mixed.machine() = ExampleGpus(2);
  mixed.machine()->device.has_segments = true;
  const NodeEntry x = Variable(mixed.builder(), "x", 0);
  const NodeEntry y = Variable(mixed.builder(), "y", 1);
  const NodeEntry a = Operator(mixed.builder(), "tanh", "a", {x});
  const NodeEntry b = Operator(mixed.builder(), "tanh", "b", {y});
  const Simulation simulation = mixed.Run({a, b}, {kOneSecond});
  EXPECT_EQ(simulation.operations.operations.size(), 2u);
}

TEST(Simulate, RefusesAMachineWithTooFewDevices) {
  Case few(2);
  few.machine()->device.count = 1;
  const NodeEntry x = Variable(few.builder(), "x", 1);
  const NodeEntry a = Operator(few.builder(), "tanh", "a", {x});
  try {
    few.Run({a}, {kOneSecond});
    ADD_FAILURE();
  } catch (const MachineError& error) {
    EXPECT_STREQ(
        error.what(),
        "machine example: found 1 devices, expected at least 2, one for each worker");
  }
}

}  // namespace
}  // namespace tofu
