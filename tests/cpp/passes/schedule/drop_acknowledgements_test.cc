#include "passes/schedule/drop_acknowledgements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fetch/crossing.h"
#include "fetch/node_names.h"
#include "passes/divide/fetch.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/retire.h"
#include "support/multifetch_checks.h"

namespace tofu {
namespace {

constexpr int kFloat32 = 0;

// Worker 0 makes `tile`, worker 1 fetches it and computes `use`, and if `is_answered`
// worker 0 fetches `use`. Worker 0 also makes a tensor of `large` numbers, before that or
// in its middle.
class Drop : public testing::Test {
 protected:
  void Build(bool is_answered, int64_t large, int64_t size = 4,
             bool in_the_middle = false) {
    const NodeEntry x = Variable("x", 0, size);
    std::vector<NodeEntry> ends;
    if (!in_the_middle) ends.push_back(Large(x, large));
    const NodeEntry tile = Operator("tile", 0, {x}, size);
    const NodeEntry use = Operator("use", 1, {Fetch(1, 0, tile, "read")}, 4);
    ends.push_back(use);
    if (in_the_middle) ends.push_back(Large(x, large));
    if (is_answered) {
      ends.push_back(Operator("end", 0, {Fetch(0, 1, use, "answer")}, 4));
    }
    Finish(ends);
  }

  NodeEntry Large(NodeEntry x, int64_t size) {
    return Operator("small", 0, {Operator("large", 0, {x}, size)}, 4);
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

  // The number of acknowledgements that cross from worker to worker.
  int Crossing() const {
    int count = 0;
    for (const Node& node : graph().nodes) {
      for (NodeEntry input : node.inputs) {
        const Node& source = graph().nodes[input.node];
        count += node.op == kRetireOp && source.op == kMultiFetchOp &&
                 source.group != node.group;
      }
    }
    return count;
  }

  const Node& RetirementOn(int worker) const {
    for (const Node& node : graph().nodes) {
      if (node.op == kRetireOp && node.group == WorkerGroup(worker)) {
        return node;
      }
    }
    throw std::out_of_range("no retirement");
  }

  GraphBuilder builder_;
  MultiFetchEmitter emitter_{Crossing::kCopies, &builder_};
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
  Build(true, 1000, 4, true);
  EXPECT_EQ(Crossing(), 2);
}

TEST_F(Drop, ALargeTileNeverLivesLonger) {
  Build(true, 1000, 100);
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

// In the backward half, worker 1 computes a tensor from `kept`, and worker 0 fetches it
// while a tensor of the size of `kept` is alive.
TEST_F(Drop, AVariableLivesOnUnlessItIsSaved) {
  const NodeEntry kept = Variable("kept", 0, 4);
  const NodeEntry x = Variable("x", 0, 1000);
  const NodeEntry use = Operator("use", 1, {Fetch(1, 0, kept, "read")}, 4);
  const NodeEntry large = Operator("large", 0, {x}, 1000);
  const NodeEntry answer = Fetch(0, 1, use, "answer");
  builder_.graph().heads = {Operator("end", 0, {large, answer}, 4)};
  Retire(&builder_);
  for (const bool is_saved : {false, true}) {
    Phases phases;
    phases.workers = 2;
    phases.forward.graph.first_entry = {0};
    phases.backward = PhaseGraph();
    phases.backward->graph = builder_.graph();
    if (is_saved) phases.saved = {{"kept", 0, 0}, {"x", 0, 0}};
    DropAcknowledgements(&phases);
    ExpectReadersBeforeRetirements(phases.backward->graph);
    phases_.forward.graph = phases.backward->graph;
    EXPECT_EQ(Crossing(), is_saved ? 2 : 1) << "one of them is worker 1's own";
  }
}

}  // namespace
}  // namespace tofu
