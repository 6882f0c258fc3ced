#include "passes/schedule/drop_acknowledgements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "passes/partition/emit_multifetch.h"
#include "passes/partition/fetch.h"
#include "passes/partition/graph_builder.h"
#include "support/multifetch_checks.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// Worker 0 makes `tile`, worker 1 fetches it and computes `use`, and if `is_answered`
// worker 0 fetches that. Worker 0 then makes a tensor of `large` numbers.
class Drop : public testing::Test {
 protected:
  void Build(bool is_answered, int64_t large, int64_t size = 4) {
    const NodeEntry x = Variable("x", 0, size);
    const NodeEntry tile = Operator("tile", 0, {x}, size);
    const NodeEntry use = Operator("use", 1, {Fetch(1, 0, tile, "read")}, 4);
    std::vector<NodeEntry> ends = {use};
    if (large > 0) ends = {Operator("large", 0, {x}, large)};
    if (is_answered) {
      ends.push_back(Operator("end", 0, {Fetch(0, 1, use, "answer")}, 4));
    }
    Finish(ends);
  }

  NodeEntry Variable(const std::string& name, int worker, int64_t size) {
    Node node;
    node.name = name;
    return {builder_.Add(std::move(node), worker, {{size}}, {kFloat32}), 0};
  }

  NodeEntry Operator(const std::string& name, int worker,
                     const std::vector<NodeEntry>& inputs, int64_t size) {
    Node node;
    node.op = "relu";
    node.name = name;
    node.inputs = inputs;
    return {builder_.Add(std::move(node), worker, {{size}}, {kFloat32}), 0};
  }

  NodeEntry Fetch(int reader, int owner, NodeEntry tile, const std::string& name) {
    const Box box = WholeBox(builder_.shape(tile));
    return emitter_.Emit(PlanFetch(reader, box, box, {{owner, box}}), {tile, tile},
                         kFloat32, name);
  }

  void Finish(const std::vector<NodeEntry>& heads) {
    builder_.graph().heads = heads;
    const int retired = Retire(&builder_);
    phases_.workers = 2;
    phases_.forward.graph = std::move(builder_.graph());
    PartitionedHead head;
    head.tiles = {{retired, 0, {}}};
    phases_.forward.heads = {head};
    phases_.saved = {{"saved", retired, 0}};
    DropAcknowledgements(&phases_);
    ExpectReadersBeforeRetirements(graph());
  }

  const Graph& graph() const { return phases_.forward.graph; }

  // How many acknowledgements cross from worker to worker.
  int Crossing() const {
    int count = 0;
    for (const Node& node : graph().nodes) {
      for (NodeEntry input : node.inputs) {
        const Node& source = graph().nodes[input.node];
        count += node.op == kRetireOp && source.op == kMultiFetchOp &&
                 source.attrs.at(kContextAttr) != node.attrs.at(kContextAttr);
      }
    }
    return count;
  }

  const Node& RetirementOn(int worker) const {
    for (const Node& node : graph().nodes) {
      if (node.op == kRetireOp && node.attrs.at(kContextAttr) == WorkerContext(worker)) {
        return node;
      }
    }
    throw std::out_of_range("no retirement");
  }

  GraphBuilder builder_;
  MultiFetchEmitter emitter_{&builder_};
  Phases phases_;
};

TEST_F(Drop, ALaterFetchOfTheOwnerReplacesAnAcknowledgement) {
  Build(true, 1000);
  EXPECT_EQ(Crossing(), 1) << "worker 0's own, of use";
  const Node& retirement = RetirementOn(0);
  const NodeEntry last = retirement.inputs.back();
  EXPECT_EQ(graph().nodes[last.node].name, "answer/fetch");
  EXPECT_EQ(last.index, 1) << "its acknowledgement";
}

TEST_F(Drop, WithoutOneTheAcknowledgementStays) {
  Build(false, 1000);
  EXPECT_EQ(Crossing(), 1);
}

TEST_F(Drop, ATileDoesNotLiveLongerAtTheWorstMoment) {
  // The tile is alive until "answer", after the only other tensor.
  Build(true, 0, 1000);
  EXPECT_EQ(Crossing(), 2);
}

TEST_F(Drop, TilesThatLiveOnShareARetirementAtTheEnd) {
  const NodeEntry x = Variable("x", 0, 4);
  const NodeEntry y = Variable("y", 0, 4);
  const NodeEntry first = Operator("first", 1, {Fetch(1, 0, x, "rx")}, 4);
  const NodeEntry second = Operator("second", 1, {Fetch(1, 0, y, "ry")}, 4);
  Finish({first, second});
  const Node& retirement = RetirementOn(0);
  EXPECT_EQ(retirement.attrs.at(kNumTilesAttr), "2");
  EXPECT_EQ(retirement.attrs.at(kNumArgsAttr), "6") << "tiles, handles, both readers";
  EXPECT_EQ(graph().heads.size(), 3u);
}

TEST_F(Drop, HeadsKeepTheirEntries) {
  const NodeEntry x = Variable("x", 0, 4);
  const NodeEntry y = Variable("y", 0, 4);
  const NodeEntry first = Operator("first", 1, {Fetch(1, 0, x, "rx")}, 4);
  Finish({first, Operator("second", 1, {Fetch(1, 0, y, "ry")}, 4)});
  for (const int head :
       {phases_.forward.heads[0].tiles[0].head, phases_.saved[0].forward_head}) {
    EXPECT_EQ(graph().nodes[graph().heads[head].node].name, "first");
  }
}

TEST_F(Drop, WhatIsSavedIsFreeAfterItsLastReaderInTheBackwardHalf) {
  Build(true, 1000);
  Phases phases;
  phases.workers = 2;
  phases.forward.graph.first_entry = {0};
  GraphBuilder builder;
  MultiFetchEmitter emitter(&builder);
  Node node;
  node.name = "saved";
  const NodeEntry saved = {builder.Add(node, 0, {{1000}}, {kFloat32}), 0};
  const Box box = {{0}, {1000}};
  const NodeEntry read =
      emitter.Emit(PlanFetch(1, box, box, {{0, box}}), {saved, saved}, kFloat32, "read");
  builder.graph().heads = {read};
  for (const bool is_saved : {false, true}) {
    phases.backward = PhaseGraph();
    GraphBuilder copy = builder;
    Retire(&copy);
    phases.backward->graph = copy.graph();
    if (is_saved) phases.saved = {{"saved", 0, 0}};
    DropAcknowledgements(&phases);
    ExpectReadersBeforeRetirements(phases.backward->graph);
  }
}

}  // namespace
}  // namespace tofu
