#include "passes/partition/share_fetches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "fetch/crossing.h"
#include "fetch/node_names.h"
#include "graph/box.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/partition.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

constexpr int64_t kWeightBytes = int64_t{8} * 8 * 8;

// x -> fully_connected -> ... -> fully_connected, all with the weight w. Between
// the first and the second is a tensor of `rows` times 8 numbers, and after the last
// one of `rows_after`.
MockGraph Chain(int64_t rows, int64_t rows_after, bool later_half = false) {
  MockGraph mock;
  const NodeEntry w = mock.Variable("w", {8, 8});
  const NodeEntry bias = mock.Variable("bias", {8});
  const auto wide = [&](NodeEntry in, int64_t extent) {
    const NodeEntry out = mock.BroadcastRows(mock.ReduceAxis("sum_axis", in, 0), extent);
    return mock.BroadcastRows(mock.ReduceAxis("sum_axis", out, 0), 4);
  };
  NodeEntry at = mock.FullyConnected(mock.Variable("x", {4, 8}), w, bias);
  at = wide(at, rows);
  if (later_half) mock.Head(at, "output");
  at = mock.FullyConnected(at, w, bias);
  at = mock.FullyConnected(at, w, bias);
  mock.Head(wide(at, rows_after), later_half ? "gradient:x" : "output");
  return mock;
}

// Partitions over two workers: all tensors are whole except w, of which each has one
// half.
Partitioned Divided(const MockGraph& mock, bool share = true, int64_t spare_bytes = 0) {
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts[0] = {0};
  PartitionOptions options{{}, FetchKind::kMultiFetch, share};
  options.spare_bytes = spare_bytes;
  return PartitionGraph(mock.graph, mock.table, plan, options);
}

int64_t Fetched(const Partitioned& divided) {
  const auto& bytes = divided.fetched_bytes_per_worker;
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

int64_t CountFetches(const Partitioned& divided) {
  const auto& nodes = divided.graph.nodes;
  return std::count_if(nodes.begin(), nodes.end(),
                       [](const Node& node) { return node.op == kMultiFetchOp; });
}

TEST(ShareFetches, SharesWhatLiesInMemoryAnyway) {
  // The second wide tensor alone takes more memory than w and the first one together.
  const Partitioned divided = Divided(Chain(16, 64));
  EXPECT_EQ(CountFetches(divided), 2);
  EXPECT_EQ(Fetched(divided), kWeightBytes);  // each fetches half of the weight
  EXPECT_EQ(divided.shared_bytes, 2 * kWeightBytes);
}

TEST(ShareFetches, FetchesAgainWhereKeepingWouldRaiseThePeak) {
  const Partitioned divided = Divided(Chain(64, 16));
  EXPECT_EQ(CountFetches(divided), 4);
  EXPECT_EQ(Fetched(divided), 2 * kWeightBytes);
  EXPECT_EQ(divided.shared_bytes, kWeightBytes);  // shared by the two neighbours
}

TEST(ShareFetches, NeverSharesBetweenForwardAndBackward) {
  const Partitioned divided = Divided(Chain(16, 64, /*later_half=*/true));
  EXPECT_EQ(CountFetches(divided), 4);
  EXPECT_EQ(divided.shared_bytes, kWeightBytes);
}

TEST(ShareFetches, KeepsARegionFromForwardToBackwardWithBytesToSpare) {
  const MockGraph mock = Chain(64, 16, /*later_half=*/true);
  for (const int64_t spare : {kWeightBytes - 1, kWeightBytes}) {
    const Partitioned divided = Divided(mock, true, spare);
    const bool keeps = spare == kWeightBytes;
    EXPECT_EQ(CountFetches(divided), keeps ? 2 : 4) << spare;
    EXPECT_EQ(divided.shared_bytes, (keeps ? 2 : 1) * kWeightBytes) << spare;
    EXPECT_EQ(Fetched(divided), (keeps ? 1 : 2) * kWeightBytes) << spare;
  }
}

TEST(ShareFetches, ThePeakGrowsByNoMoreThanWhatIsSpared) {
  const MockGraph mock = Chain(64, 16);
  EXPECT_EQ(Divided(mock, true, kWeightBytes - 1).shared_bytes, kWeightBytes);
  EXPECT_EQ(Divided(mock, true, kWeightBytes).shared_bytes, 2 * kWeightBytes);
  EXPECT_EQ(Divided(mock, false, kWeightBytes).shared_bytes, 0) << "not without sharing";
}

// Nodes of worker 0, which fetches worker 1's tile of 16 numbers twice, with a tensor of
// `between` numbers between the two fetches; then it makes one of `after` numbers.
class TwoFetches {
 public:
  TwoFetches() {
    Node tile;
    tile.name = "remote";
    remote_ = {builder.Add(std::move(tile), 1, {{16}}, {0}), 0};
    start_ = Variable("start", 0, 1);
  }

  NodeEntry Variable(const std::string& name, int worker, int64_t extent) {
    Node node;
    node.name = name;
    return {builder.Add(std::move(node), worker, {{extent}}, {0}), 0};
  }
  NodeEntry Operator(const std::vector<NodeEntry>& inputs, int64_t extent) {
    Node node;
    node.op = "op";
    node.name = "op";
    node.inputs = inputs;
    const int worker = builder.worker(inputs[0]);
    return {builder.Add(std::move(node), worker, {{extent}}, {0}), 0};
  }
  // Fetches the whole tile of another worker.
  NodeEntry Fetch(NodeEntry tile, int reader) {
    const Box box = WholeBox(builder.shape(tile));
    std::vector<NodeEntry> entries(2);
    entries[builder.worker(tile)] = tile;
    return emitter.Emit(PlanFetch(reader, box, box, {{builder.worker(tile), box}}),
                        entries, 0, "f");
  }
  NodeEntry FetchRemote() { return Fetch(remote_, 0); }
  NodeEntry start() const { return start_; }

  // The number of bytes shared; `over` overwrites its input.
  int64_t Shared(int over = -1) {
    const size_t num_nodes = builder.graph().nodes.size();
    FetchGraph fetches{&builder.graph(),
                       &builder.node_workers(),
                       std::vector<bool>(num_nodes, false),
                       {}};
    if (over >= 0) fetches.in_place[over] = true;
    return ShareFetches(2, fetches)[0];
  }

  GraphBuilder builder;
  MultiFetchEmitter emitter{Crossing::kCopies, &builder};

 private:
  NodeEntry remote_;
  NodeEntry start_;
};

// Between the fetches `between` + 1 numbers are alive, in the end `after` + 1.
int64_t SharedAcross(int64_t between, int64_t after) {
  TwoFetches graph;
  NodeEntry at = graph.Operator({graph.FetchRemote(), graph.start()}, 1);
  at = graph.Operator({graph.Operator({at}, between)}, 1);
  at = graph.Operator({graph.FetchRemote(), at}, 1);
  at = graph.Operator({graph.Operator({at}, after)}, 1);
  graph.builder.graph().heads = {at};
  return graph.Shared();
}

TEST(ShareFetches, ARegionMayFillWhatThePeakLeavesToTheLastByte) {
  EXPECT_EQ(SharedAcross(100, 100 + 16), 16 * 4);
  EXPECT_EQ(SharedAcross(100, 100 + 15), 0);
}

// After the second fetch a tensor of 100 numbers is computed from another. Both are alive
// at once, unless the second overwrites the first.
TEST(ShareFetches, WhatIsWrittenInPlaceDoesNotRaiseThePeak) {
  for (const bool is_in_place : {false, true}) {
    TwoFetches graph;
    NodeEntry at = graph.Operator({graph.FetchRemote(), graph.start()}, 1);
    at = graph.Operator({graph.Operator({at}, 100)}, 1);
    at = graph.Operator({graph.FetchRemote(), at}, 1);
    const NodeEntry over = graph.Operator({graph.Operator({at}, 100)}, 100);
    graph.builder.graph().heads = {graph.Operator({over}, 1)};
    EXPECT_EQ(graph.Shared(is_in_place ? over.node : -1), is_in_place ? 0 : 16 * 4);
  }
}

// The worker's own tile of 100 numbers is published early and read late, by a fetch of
// worker 1 that waits for an operator after the second fetch.
TEST(ShareFetches, APublishedTileIsAliveUntilItsReadersHaveRun) {
  for (const bool is_published : {true, false}) {
    TwoFetches graph;
    // The peak is before the tile exists.
    NodeEntry at = graph.Operator({graph.Operator({graph.start()}, 120)}, 1);
    const NodeEntry tile = graph.Operator({at}, 100);
    at = graph.Operator({tile}, 1);
    at = graph.Operator({graph.FetchRemote(), at}, 1);
    at = graph.Operator({graph.Operator({at}, 10)}, 1);
    at = graph.Operator({graph.FetchRemote(), at}, 1);
    graph.builder.graph().heads = {at};
    if (is_published) {
      const NodeEntry late = graph.Fetch(tile, 1);
      graph.builder.graph().heads.push_back(
          graph.Operator({late, graph.Fetch(at, 1)}, 1));
    }
    EXPECT_EQ(graph.Shared(), is_published ? 0 : 16 * 4);
  }
}

TEST(ShareFetches, IsAChoice) {
  const Partitioned divided = Divided(Chain(16, 64), /*share=*/false);
  EXPECT_EQ(CountFetches(divided), 6);
  EXPECT_EQ(Fetched(divided), 3 * kWeightBytes);
  EXPECT_EQ(divided.shared_bytes, 0);
}

TEST(ShareFetches, LeavesFetchesOfOtherRegionsAlone) {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 8});
  mock.Head(mock.Undescribed(x), "output");
  mock.Head(mock.Elementwise("mul", {x, x}), "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts[0] = {0};
  plan.op_cuts[2] = {1};
  const Partitioned divided =
      PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
  // A quarter of x, of doubles, for one of the inputs of mul, by each worker.
  EXPECT_EQ(divided.shared_bytes, 2 * (2 * 4) * 8);
  const Partitioned all =
      PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch, false});
  EXPECT_EQ(Fetched(all), Fetched(divided) + divided.shared_bytes);
}

}  // namespace
}  // namespace tofu
