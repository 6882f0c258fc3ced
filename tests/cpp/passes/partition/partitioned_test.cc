#include "passes/partition/partitioned.h"

#include <gtest/gtest.h>

#include "passes/partition/partition.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// A sum over the rows of x, which two workers have by rows.
Partitioned Divided() {
  MockGraph mock;
  const NodeEntry x = mock.Variable("x", {4, 6});
  const NodeEntry sum = mock.ReduceAxis("sum_axis", x, 0);
  mock.Head(sum, "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts = {{0}, {0}};
  plan.op_cuts[sum.node] = {0};
  return PartitionGraph(mock.graph, mock.table, plan);
}

TEST(Partitioned, HasATileForEveryWorker) {
  const Partitioned divided = Divided();
  EXPECT_EQ(divided.workers, 2);
  EXPECT_EQ(divided.variables[0].role, "parameter");
  EXPECT_EQ(divided.variables[0].tiles[1].box, (Box{{2, 0}, {4, 6}}));
  EXPECT_EQ(divided.variables[0].tiles[1].worker, 1);
  EXPECT_EQ(divided.heads[0].tiles[1].box, (Box{{3}, {6}}));
}

TEST(Partitioned, CountsWhatEachWorkerFetches) {
  // Each worker gets the other's half of three sums of float64.
  EXPECT_EQ(Divided().fetched_bytes_per_worker, (std::vector<int64_t>{24, 24}));
}

}  // namespace
}  // namespace tofu
