// Random graphs under random plans: compares the values of the partitioned graph with
// the serial graph's, and its fetches with a recount.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "fetch/crossing.h"
#include "fetch/fetch_nodes.h"
#include "mxnet/dialect/dialect.h"
#include "passes/partition/partition.h"
#include "passes/schedule/phases.h"
#include "passes/search/cost/cost.h"
#include "passes/search/cost/routes.h"
#include "support/mock_graph.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr int kSeeds = 100;

bool AllFinite(const std::vector<Array>& values) {
  for (const Array& array : values) {
    for (double value : array.data) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

// Whether values are equal up to rounding: terms are reduced in another order than
// serially.
bool Close(const Array& a, const Array& b) {
  if (a.shape != b.shape) return false;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (std::abs(a.data[i] - b.data[i]) > 1e-9 * (1 + std::abs(a.data[i]))) return false;
  }
  return true;
}

std::map<std::string, Array> TileValues(const std::vector<PartitionedVariable>& variables,
                                        const std::map<std::string, Array>& whole) {
  std::map<std::string, Array> values;
  for (const PartitionedVariable& variable : variables) {
    for (const VariableTile& tile : variable.tiles) {
      values.emplace(tile.name, Crop(whole.at(variable.name), tile.box));
    }
  }
  return values;
}

// --- Bytes ------------------------------------------------------------------------

// The bytes that the search counts.
int64_t PlannedBytes(const MockGraph& mock, const Plan& plan) {
  const Graph& graph = mock.graph;
  const std::vector<bool> used = UsedEntries(graph);
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    const OperatorRegions regions(graph, mock.table, node, plan.op_cuts[node],
                                  plan.division());
    const auto tiles = [&](NodeEntry entry) {
      return TileBoxes(graph.shape(entry), plan.tensor_cuts[graph.entry_id(entry)],
                       plan.division());
    };
    bool live = false;
    for (int output = 0; output < n.num_outputs; ++output) {
      const NodeEntry entry{node, output};
      if (!used[graph.entry_id(entry)]) continue;
      live = true;
      bytes +=
          regions.OutputElements(output, tiles(entry)) * DtypeBytes(graph.dtype(entry));
    }
    for (size_t slot = 0; live && slot < n.inputs.size(); ++slot) {
      bytes += regions.InputElements(static_cast<int>(slot), tiles(n.inputs[slot])) *
               DtypeBytes(graph.dtype(n.inputs[slot]));
    }
  }
  return bytes;
}

// The bytes on the edges between workers.
int64_t CrossingBytes(const Partitioned& partitioned) {
  const Graph& graph = partitioned.graph;
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (partitioned.node_workers[input.node] == partitioned.node_workers[node])
        continue;
      bytes += NumElements(graph.shape(input)) * DtypeBytes(graph.dtype(input));
    }
  }
  return bytes;
}

// Checks that only fetches read other workers' tiles, and which tiles they are.
void ExpectCrossing(Crossing crossing, const Partitioned& partitioned) {
  const Graph& graph = partitioned.graph;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& reader = graph.nodes[node];
    for (NodeEntry input : reader.inputs) {
      if (partitioned.node_workers[input.node] == partitioned.node_workers[node])
        continue;
      EXPECT_TRUE(IsDirect(reader)) << reader.name;
      EXPECT_EQ(reader.op, kMultiFetchOp) << reader.name;
      if (crossing == Crossing::kTiles) continue;
      const Node& source = graph.nodes[input.node];
      EXPECT_LE(graph.shape(input).size(), 4u) << reader.name;
      EXPECT_TRUE(!source.is_variable() ||
                  IsSurelyPlain(graph.shape(input), graph.dtype(input)))
          << reader.name;
    }
  }
}

// --- One random case --------------------------------------------------------------

void ExpectHeads(const MockGraph& mock, const std::vector<Array>& serial,
                 const PhaseGraph& phase, const std::vector<Array>& values,
                 bool are_outputs) {
  size_t next = 0;
  for (size_t h = 0; h < mock.graph.heads.size(); ++h) {
    const std::string& role = mock.graph.head_roles[h];
    if ((role == "output") != are_outputs) continue;
    const Array& whole = serial[mock.graph.entry_id(mock.graph.heads[h])];
    ASSERT_LT(next, phase.heads.size());
    const PartitionedHead& head = phase.heads[next++];
    for (const HeadTile& tile : head.tiles) {
      const NodeEntry entry = phase.graph.heads[tile.head];
      EXPECT_TRUE(Close(Crop(whole, tile.box), values[phase.graph.entry_id(entry)]))
          << "head " << h << " (" << role << ") differs on worker " << tile.worker;
    }
  }
  EXPECT_EQ(next, phase.heads.size());
}

void ExpectPhasesEqualSerial(const MockGraph& mock, const Partitioned& partitioned,
                             const std::map<std::string, Array>& whole,
                             const std::vector<Array>& serial) {
  const Phases phases = SplitPhases(partitioned);
  std::map<std::string, Array> variables = TileValues(phases.variables, whole);
  const std::vector<Array> forward = RunGraph(phases.forward.graph, variables);
  ExpectHeads(mock, serial, phases.forward, forward, true);
  if (!phases.backward) return;
  for (const SavedEntry& saved : phases.saved) {
    const NodeEntry entry = phases.forward.graph.heads[saved.forward_head];
    const bool added =
        variables.emplace(saved.name, forward[phases.forward.graph.entry_id(entry)])
            .second;
    EXPECT_TRUE(added) << saved.name << " is the name of two variables";
  }
  const std::vector<Array> backward = RunGraph(phases.backward->graph, variables);
  ExpectHeads(mock, serial, *phases.backward, backward, false);
}

// The number of tensors that the executor copies to other workers, once to each.
int64_t Copies(const Partitioned& partitioned) {
  const Graph& graph = partitioned.graph;
  std::set<std::pair<int, int>> copies;  // entry, reader
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const int reader = partitioned.node_workers[node];
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (partitioned.node_workers[input.node] == reader) continue;
      copies.emplace(graph.entry_id(input), reader);
    }
  }
  return static_cast<int64_t>(copies.size());
}

std::vector<std::vector<double>> HeadValues(const Partitioned& partitioned,
                                            const std::map<std::string, Array>& whole) {
  const Graph& graph = partitioned.graph;
  const std::vector<Array> values =
      RunGraph(graph, TileValues(partitioned.variables, whole));
  std::vector<std::vector<double>> heads;
  for (const PartitionedHead& head : partitioned.heads) {
    for (const HeadTile& tile : head.tiles) {
      heads.push_back(values[graph.entry_id(graph.heads[tile.head])].data);
    }
  }
  return heads;
}

// Checks that fetches through roots make the same bits, and count their bytes separately.
// Returns the number of copies saved; a tile that several operators of a worker read
// whole is copied once without roots.
int64_t ExpectSameThroughRoots(const MockGraph& mock, const Plan& plan,
                               const Partitioned& direct,
                               const std::map<std::string, Array>& whole) {
  const Partitioned rooted = PartitionGraph(mock.graph, mock.table, plan);
  const auto& fetched = rooted.fetched_bytes_per_worker;
  const int64_t total = std::accumulate(fetched.begin(), fetched.end(), int64_t{0});
  EXPECT_EQ(total - rooted.relayed_bytes, Recount(mock.graph, mock.table, plan));
  EXPECT_EQ(total, CrossingBytes(rooted));
  EXPECT_EQ(HeadValues(rooted, whole), HeadValues(direct, whole));
  return Copies(direct) - Copies(rooted);
}

// Options without roots, for fetches of any size.
PartitionOptions Unrooted(FetchKind fetch) {
  PartitionOptions options{{}, fetch};
  options.small_bytes = 0;
  return options;
}

int WorkersOf(const std::vector<int>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 1, std::multiplies<>());
}

class PartitionRandom : public testing::TestWithParam<std::vector<int>> {};

TEST_P(PartitionRandom, ComputesAndFetchesWhatTheSerialGraphAndThePlanSay) {
  int compared = 0;
  int64_t fewer_copies = 0;
  std::map<Crossing, int64_t> shared;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    Plan plan = RandomPlan(mock, GetParam(), &random);
    if (seed % 2 == 1) plan.shares = RandomShares(plan.parts, &random);
    const auto whole = RandomValues(mock.graph, &random);
    const std::vector<Array> serial = RunGraph(mock.graph, whole);
    const Partitioned partitioned =
        PartitionGraph(mock.graph, mock.table, plan, Unrooted(FetchKind::kPlain));
    SCOPED_TRACE(DumpGraph(mock.graph));
    const auto& fetched = partitioned.fetched_bytes_per_worker;
    const int64_t total = std::accumulate(fetched.begin(), fetched.end(), int64_t{0});
    EXPECT_EQ(total, Recount(mock.graph, mock.table, plan));
    EXPECT_EQ(total, PlannedBytes(mock, plan));
    EXPECT_EQ(total, CrossingBytes(partitioned));
    if (!AllFinite(serial)) continue;
    ++compared;
    ExpectPhasesEqualSerial(mock, partitioned, whole, serial);
    fewer_copies += ExpectSameThroughRoots(mock, plan, partitioned, whole);
    for (const Crossing crossing : {Crossing::kPlainTiles, Crossing::kTiles}) {
      PartitionOptions options = Unrooted(FetchKind::kMultiFetch);
      options.crossing = crossing;
      const Partitioned multifetch =
          PartitionGraph(mock.graph, mock.table, plan, options);
      const auto& fewer = multifetch.fetched_bytes_per_worker;
      EXPECT_EQ(std::accumulate(fewer.begin(), fewer.end(), multifetch.shared_bytes),
                total);
      shared[crossing] += multifetch.shared_bytes;
      ExpectCrossing(crossing, multifetch);
      ExpectPhasesEqualSerial(mock, multifetch, whole, serial);
    }
    EXPECT_EQ(partitioned.shared_bytes, 0);
    if (HasFailure()) return;  // the first failing case says enough
  }
  EXPECT_GT(compared, kSeeds / 2);
  EXPECT_EQ(fewer_copies > 0, WorkersOf(GetParam()) > 2);
  for (const auto& [crossing, bytes] : shared) {
    EXPECT_EQ(bytes > 0, !GetParam().empty()) << static_cast<int>(crossing);
  }
}

// A route for every input that has one, through random stops.
std::vector<Route> RandomRoutes(const MockGraph& mock, const Plan& plan,
                                std::mt19937* random) {
  std::vector<int> levels;
  for (size_t step = plan.parts.size(); step-- > 0;)
    levels.push_back(static_cast<int>(step));
  std::vector<Route> routes;
  for (int node = 0; node < mock.graph.num_nodes(); ++node) {
    const Node& n = mock.graph.nodes[node];
    if (n.is_variable()) continue;
    const OperatorRegions regions(mock.graph, mock.table, node, plan.op_cuts[node],
                                  plan.division());
    for (size_t input = 0; input < n.inputs.size(); ++input) {
      const auto stops =
          RouteStops(regions.Boxes(false, static_cast<int>(input)), levels);
      if (stops.empty()) continue;
      Route route{node, static_cast<int>(input), {}};
      for (TileSplits stop = stops[(*random)() % stops.size()]; !stop.empty();
           stop.pop_back()) {
        if (route.stops.empty() || (*random)() % 2 == 0) route.stops.push_back(stop);
      }
      routes.push_back(std::move(route));
    }
  }
  return routes;
}

// Fetches over routes make the same bits, and their bytes are counted separately.
TEST_P(PartitionRandom, RoutesBringTheSameRegions) {
  int routed = 0;
  int64_t added = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    Plan plan = RandomPlan(mock, GetParam(), &random);
    if (seed % 2 == 1) plan.shares = RandomShares(plan.parts, &random);
    const auto whole = RandomValues(mock.graph, &random);
    const std::vector<Array> serial = RunGraph(mock.graph, whole);
    if (!AllFinite(serial)) continue;
    const Partitioned direct =
        PartitionGraph(mock.graph, mock.table, plan, Unrooted(FetchKind::kPlain));
    plan.routes = RandomRoutes(mock, plan, &random);
    routed += static_cast<int>(plan.routes.size());
    for (const FetchKind kind : {FetchKind::kPlain, FetchKind::kMultiFetch}) {
      const Partitioned over =
          PartitionGraph(mock.graph, mock.table, plan, Unrooted(kind));
      const auto& fetched = over.fetched_bytes_per_worker;
      EXPECT_EQ(std::accumulate(fetched.begin(), fetched.end(),
                                over.shared_bytes - over.relayed_bytes),
                Recount(mock.graph, mock.table, plan));
      EXPECT_GE(over.relayed_bytes, 0);
      added += over.relayed_bytes;
      if (kind == FetchKind::kPlain) {
        EXPECT_EQ(HeadValues(over, whole), HeadValues(direct, whole));
      }
      ExpectPhasesEqualSerial(mock, over, whole, serial);
    }
    if (HasFailure()) return;  // the first failing case says enough
  }
  EXPECT_EQ(routed > 0, GetParam().size() > 1);
  EXPECT_EQ(added > 0, GetParam().size() > 1);
}

// A random chain of stops that leads to a random one of `stops`, largest pieces first.
std::vector<TileSplits> RandomChain(const std::vector<TileSplits>& stops,
                                    std::mt19937* random) {
  std::vector<TileSplits> chain;
  if (stops.empty()) return chain;
  for (TileSplits stop = stops[(*random)() % stops.size()]; !stop.empty();
       stop.pop_back()) {
    if (chain.empty() || (*random)() % 2 == 0) chain.push_back(stop);
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

// A route for every output that has one, through random stops; each step has a level.
std::vector<OutputRoute> RandomOutputRoutes(const MockGraph& mock, const Plan& plan,
                                            std::mt19937* random) {
  std::vector<int> levels;
  for (size_t step = plan.parts.size(); step-- > 0;)
    levels.push_back(static_cast<int>(step));
  const std::vector<bool> used = UsedEntries(mock.graph);
  std::vector<OutputRoute> routes;
  for (int node = 0; node < mock.graph.num_nodes(); ++node) {
    const Node& n = mock.graph.nodes[node];
    if (n.is_variable()) continue;
    const OperatorRegions regions(mock.graph, mock.table, node, plan.op_cuts[node],
                                  plan.division());
    for (int output = 0; output < n.num_outputs; ++output) {
      const int entry = mock.graph.entry_id({node, output});
      if (!used[entry]) continue;
      const GroupBoxes tiles =
          TileBoxes(mock.graph.shapes[entry], plan.tensor_cuts[entry], plan.division());
      const StepSet reduces = regions.Reduces(output);
      OutputRoute route{node, output, {}, {}};
      if ((*random)() % 4 > 0) {
        route.partial = RandomChain(
            PartialStops(regions.Boxes(true, output), reduces, levels), random);
      }
      if (route.partial.empty() || (*random)() % 3 > 0) {
        route.stops = RandomChain(OutputStops(tiles, reduces, levels), random);
        std::reverse(route.stops.begin(), route.stops.end());
      }
      if (route.partial.empty() && route.stops.empty()) continue;
      routes.push_back(std::move(route));
    }
  }
  return routes;
}

// Checks that workers that own the same tile of a head have the same bits.
void ExpectSameBits(const Partitioned& partitioned,
                    const std::map<std::string, Array>& whole) {
  const std::vector<std::vector<double>> values = HeadValues(partitioned, whole);
  size_t next = 0;
  for (const PartitionedHead& head : partitioned.heads) {
    for (size_t i = 0; i < head.tiles.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!(head.tiles[i].box == head.tiles[j].box)) continue;
        EXPECT_EQ(values[next + i], values[next + j]) << head.role;
      }
    }
    next += head.tiles.size();
  }
}

// If hosts add up their terms first, values are the same, and bytes are counted
// separately.
TEST_P(PartitionRandom, RoutesOfOutputsMakeTheSameTiles) {
  bool has_partial = false;
  bool moves_more = false;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    Plan plan = RandomPlan(mock, GetParam(), &random);
    if (seed % 2 == 1) plan.shares = RandomShares(plan.parts, &random);
    const auto whole = RandomValues(mock.graph, &random);
    const std::vector<Array> serial = RunGraph(mock.graph, whole);
    if (!AllFinite(serial)) continue;
    plan.output_routes = RandomOutputRoutes(mock, plan, &random);
    for (const OutputRoute& route : plan.output_routes) {
      has_partial = has_partial || !route.partial.empty();
    }
    for (const FetchKind kind : {FetchKind::kPlain, FetchKind::kMultiFetch}) {
      const Partitioned over =
          PartitionGraph(mock.graph, mock.table, plan, Unrooted(kind));
      const auto& fetched = over.fetched_bytes_per_worker;
      EXPECT_EQ(std::accumulate(fetched.begin(), fetched.end(),
                                over.shared_bytes - over.relayed_bytes),
                Recount(mock.graph, mock.table, plan));
      moves_more = moves_more || over.relayed_bytes > 0;
      ExpectPhasesEqualSerial(mock, over, whole, serial);
      if (kind == FetchKind::kPlain) ExpectSameBits(over, whole);
    }
    if (HasFailure()) return;  // the first failing case says enough
  }
  EXPECT_EQ(has_partial, GetParam().size() > 1);
  EXPECT_EQ(moves_more, GetParam().size() > 1);
}

TEST(RoutesOfOutputs, EveryReducerNests) {
  for (const char* op : {"sum_axis", "prod_axis", "max_axis", "min_axis"}) {
    SCOPED_TRACE(op);
    std::mt19937 random(1);
    MockGraph mock;
    const NodeEntry y = mock.ReduceAxis(op, mock.Variable("x", {8, 4}), 0);
    mock.Head(y, "output");
    Plan plan = ReplicatedPlan(mock, {2, 2});
    const int reduced = mock.table.row(y.node)->outputs[0].reduce.begin()->first;
    plan.op_cuts[y.node] = {reduced, reduced};
    plan.output_routes = {{y.node, 0, {{{1, 0}}}, {{{1, 0}, {0, 0}}, {{1, 0}}}}};
    const auto whole = RandomValues(mock.graph, &random);
    for (const FetchKind kind : {FetchKind::kPlain, FetchKind::kMultiFetch}) {
      const Partitioned over =
          PartitionGraph(mock.graph, mock.table, plan, Unrooted(kind));
      EXPECT_EQ(over.relayed_bytes, 0);
      ExpectPhasesEqualSerial(mock, over, whole, RunGraph(mock.graph, whole));
      if (kind == FetchKind::kPlain) ExpectSameBits(over, whole);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, PartitionRandom,
                         testing::Values(std::vector<int>{}, std::vector<int>{2},
                                         std::vector<int>{3}, std::vector<int>{5},
                                         std::vector<int>{2, 2}, std::vector<int>{3, 2},
                                         std::vector<int>{2, 2, 2}),
                         [](const auto& suite) {
                           return "k" + std::to_string(WorkersOf(suite.param));
                         });

}  // namespace
}  // namespace tofu
