#include "passes/partition/verify_tiles.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"
#include "passes/partition/partition.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

// Both workers fetch the other's half of x.
Partitioned Sound() {
  MockGraph mock(0);
  const NodeEntry x = mock.Variable("x", {4});
  mock.Head(mock.Elementwise("mul", {x, mock.Variable("w", {4})}), "output");
  Plan plan = ReplicatedPlan(mock, {2});
  plan.tensor_cuts[0] = {0};
  return PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
}

std::string Complaint(const std::function<void(Partitioned*)>& damage) {
  Partitioned partitioned = Sound();
  damage(&partitioned);
  try {
    VerifyTiles(partitioned.graph, partitioned.variables, partitioned.heads,
                partitioned.workers, "the test");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "sound";
}

void ExpectComplaint(const std::string& expected,
                     const std::function<void(Partitioned*)>& damage) {
  const std::string error = Complaint(damage);
  EXPECT_NE(error.find(expected), std::string::npos) << error;
}

Node& NodeOf(Partitioned* partitioned, const std::string& op) {
  for (Node& node : partitioned->graph.nodes) {
    if (node.op == op) return node;
  }
  throw std::out_of_range(op);
}

int NumberOf(const Graph& graph, const std::string& op) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].op == op) return node;
  }
  return -1;
}

TEST(VerifyTiles, TakesWhatPartitionMakes) {
  EXPECT_EQ(Complaint([](Partitioned*) {}), "sound");
}

TEST(VerifyTiles, FindsADamagedGraph) {
  ExpectComplaint("two variables are called", [](Partitioned* p) {
    p->graph.nodes[1].name = p->graph.nodes[0].name;
  });
}

TEST(VerifyTiles, FindsNodesWithoutAWorker) {
  ExpectComplaint("is on no worker",
                  [](Partitioned* p) { p->graph.nodes[0].group = Name(); });
  ExpectComplaint("is on no worker",
                  [](Partitioned* p) { p->graph.nodes[0].group = "worker2"; });
}

TEST(VerifyTiles, FindsReadersOfOtherWorkersThatWouldGetNoCopy) {
  ExpectComplaint("reads another worker's", [](Partitioned* p) {
    Node& fetch = NodeOf(p, kMultiFetchOp);
    fetch.attrs.erase(kDirectAttr);
  });
}

TEST(VerifyTiles, FindsTensorsThatNoTilesCover) {
  ExpectComplaint("x has 1 tiles for 2 workers",
                  [](Partitioned* p) { p->variables[0].tiles.pop_back(); });
  ExpectComplaint("tiles of x overlap",
                  [](Partitioned* p) { p->variables[0].tiles[0].box = {{0}, {3}}; });
  ExpectComplaint("tiles of x hold 3 elements of 4",
                  [](Partitioned* p) { p->variables[0].tiles[0].box = {{0}, {1}}; });
  ExpectComplaint("outside the tensor",
                  [](Partitioned* p) { p->variables[0].tiles[1].box = {{2}, {5}}; });
  ExpectComplaint("on another worker or outside",
                  [](Partitioned* p) { p->heads[0].tiles[1].worker = 0; });
}

TEST(VerifyTiles, FindsTilesThatAreOtherArrays) {
  ExpectComplaint("another shape or dtype than its tile of output",
                  [](Partitioned* p) { p->heads[0].dtype = 1; });
  ExpectComplaint("output on worker 1 is head 99",
                  [](Partitioned* p) { p->heads[0].tiles[1].head = 99; });
  ExpectComplaint("on worker 1, the tile of output on worker 0", [](Partitioned* p) {
    std::swap(p->heads[0].tiles[0].head, p->heads[0].tiles[1].head);
  });
}

TEST(VerifyTiles, FindsFetchesThatMakeSomethingElse) {
  ExpectComplaint("makes another region", [](Partitioned* p) {
    p->graph.dtypes[p->graph.first_entry[NumberOf(p->graph, kMultiFetchOp)]] = 1;
  });
  ExpectComplaint("has other inputs or outputs than",
                  [](Partitioned* p) { NodeOf(p, kMultiFetchOp).inputs.pop_back(); });
  ExpectComplaint("source 0 of the fetch", [](Partitioned* p) {
    const NodeEntry tile = NodeOf(p, kMultiFetchOp).inputs[0];
    p->graph.shapes[p->graph.entry_id(tile)] = {3};
  });
}

}  // namespace
}  // namespace tofu
