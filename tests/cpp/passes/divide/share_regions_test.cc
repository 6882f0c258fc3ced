#include "passes/divide/share_regions.h"

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

TEST(ShareRegions, SharesWhatLiesInMemoryAnyway) {
  // The second wide tensor alone takes more memory than w and the first one together.
  const Partitioned divided = Divided(Chain(16, 64));
  EXPECT_EQ(CountFetches(divided), 2);
  EXPECT_EQ(Fetched(divided), kWeightBytes);  // each fetches half of the weight
  EXPECT_EQ(divided.shared_bytes, 2 * kWeightBytes);
}

TEST(ShareRegions, FetchesAgainWhereKeepingWouldRaiseThePeak) {
  const Partitioned divided = Divided(Chain(64, 16));
  EXPECT_EQ(CountFetches(divided), 4);
  EXPECT_EQ(Fetched(divided), 2 * kWeightBytes);
  EXPECT_EQ(divided.shared_bytes, kWeightBytes);  // shared by the two neighbours
}

TEST(ShareRegions, NeverSharesBetweenForwardAndBackward) {
  const Partitioned divided = Divided(Chain(16, 64, /*later_half=*/true));
  EXPECT_EQ(CountFetches(divided), 4);
  EXPECT_EQ(divided.shared_bytes, kWeightBytes);
}

TEST(ShareRegions, KeepsARegionFromForwardToBackwardWithBytesToSpare) {
  const MockGraph mock = Chain(64, 16, /*later_half=*/true);
  for (const int64_t spare : {kWeightBytes - 1, kWeightBytes}) {
    const Partitioned divided = Divided(mock, true, spare);
    const bool keeps = spare == kWeightBytes;
    EXPECT_EQ(CountFetches(divided), keeps ? 2 : 4) << spare;
    EXPECT_EQ(divided.shared_bytes, (keeps ? 2 : 1) * kWeightBytes) << spare;
    EXPECT_EQ(Fetched(divided), (keeps ? 1 : 2) * kWeightBytes) << spare;
  }
}

TEST(ShareRegions, ThePeakGrowsByNoMoreThanWhatIsSpared) {
  const MockGraph mock = Chain(64, 16);
  EXPECT_EQ(Divided(mock, true, kWeightBytes - 1).shared_bytes, kWeightBytes);
  EXPECT_EQ(Divided(mock, true, kWeightBytes).shared_bytes, 2 * kWeightBytes);
  EXPECT_EQ(Divided(mock, false, kWeightBytes).shared_bytes, 0) << "not without sharing";
}

TEST(ShareRegions, IsAChoice) {
  const Partitioned divided = Divided(Chain(16, 64), /*share=*/false);
  EXPECT_EQ(CountFetches(divided), 6);
  EXPECT_EQ(Fetched(divided), 3 * kWeightBytes);
  EXPECT_EQ(divided.shared_bytes, 0);
}

TEST(ShareRegions, LeavesFetchesOfOtherRegionsAlone) {
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
