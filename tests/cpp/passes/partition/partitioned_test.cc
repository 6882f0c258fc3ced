#include "passes/partition/partitioned.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "passes/partition/partition.h"
#include "support/mock_graph.h"

namespace tofu {
namespace {

using Json = nlohmann::ordered_json;

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

// What is said of the document after a change.
std::string ErrorAfter(const std::function<void(Json*)>& change) {
  Json json = Json::parse(WritePartitioned(Divided()));
  change(&json);
  try {
    ReadPartitioned(json.dump());
  } catch (const UserError& error) {
    EXPECT_EQ(error.blame(), Blame::kGraph);
    return error.what();
  }
  return "no error";
}

TEST(Partitioned, IsReadAsItWasWritten) {
  const Partitioned divided = Divided();
  const std::string text = WritePartitioned(divided);
  const Partitioned read = ReadPartitioned(text);
  EXPECT_EQ(WritePartitioned(read), text);
  EXPECT_EQ(read.workers, 2);
  EXPECT_EQ(read.node_workers, divided.node_workers);
  EXPECT_EQ(read.fetched_bytes_per_worker, divided.fetched_bytes_per_worker);
  EXPECT_EQ(read.variables[0].role, "parameter");
  EXPECT_EQ(read.variables[0].tiles[1].box, (Box{{2, 0}, {4, 6}}));
  EXPECT_EQ(read.variables[0].tiles[1].worker, 1);
  EXPECT_EQ(read.heads[0].tiles[1].box, (Box{{3}, {6}}));
}

TEST(Partitioned, TheTotalIsTheSumOverWorkers) {
  const Json json = Json::parse(WritePartitioned(Divided()));
  // Each worker gets the other's half of three sums of float64.
  EXPECT_EQ(json["fetched_bytes_per_worker"], (std::vector<int64_t>{24, 24}));
  EXPECT_EQ(json["fetched_bytes"], 48);
}

TEST(Partitioned, ADamagedDocumentIsRefused) {
  EXPECT_EQ(ErrorAfter([](Json*) {}), "no error");
  const std::vector<std::pair<const char*, Json>> damages = {
      {"/format", "tofu-plan"},
      {"/version", 2},
      {"/workers", 0},
      {"/variables/x/tiles/0/worker", 2},
      {"/variables/x/tiles/0/end/0", 5},
      {"/variables/x/tiles/0/begin", {0}},
      {"/variables/x/tiles/0/end", {2, 6, 1}},
      {"/variables/x/dtype", -1},
      {"/heads/0/tiles/0/head", 2},
      {"/heads/0/tiles/1/end/0", 7},
      {"/shared_bytes", -1},
  };
  for (const auto& [path, value] : damages) {
    const Json& damage = value;
    EXPECT_NE(ErrorAfter([path = path, &damage](Json* json) {
                (*json)[Json::json_pointer(path)] = damage;
              }),
              "no error")
        << path;
  }
}

TEST(Partitioned, ANodeOfNoWorkerIsNamed) {
  const std::string error = ErrorAfter([](Json* json) {
    (*json)["graph"]["nodes"][0]["attrs"]["__ctx_group__"] = "worker2";
  });
  EXPECT_NE(error.find("node x@0"), std::string::npos) << error;
  EXPECT_NE(error.find("worker0 to worker1"), std::string::npos) << error;
}

TEST(Partitioned, ShiftedHeadsLeaveRoomForNewFirstOnes) {
  Partitioned divided = Divided();
  const int first = divided.heads[0].tiles[0].head;
  const int second = divided.heads[0].tiles[1].head;
  ShiftHeads(3, &divided.heads);
  EXPECT_EQ(divided.heads[0].tiles[0].head, first + 3);
  EXPECT_EQ(divided.heads[0].tiles[1].head, second + 3);
}

TEST(Partitioned, AMemberOfTextIsAsIfItHadBeenParsed) {
  EXPECT_EQ(WithMember({{"a", 1}}, "b", R"({"c":[2]})"), R"({"a":1,"b":{"c":[2]}})");
}

}  // namespace
}  // namespace tofu
