// Random graphs under random plans: what the partitioned graph computes and
// fetches, against the serial graph and an element-wise recount.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "passes/partition/partition.h"
#include "passes/schedule/phases.h"
#include "passes/search/cost.h"
#include "support/mock_graph.h"
#include "support/multifetch_checks.h"

namespace tofu {
namespace {

constexpr int kSeeds = 60;

bool AllFinite(const std::vector<Array>& values) {
  for (const Array& array : values) {
    for (double value : array.data) {
      if (!std::isfinite(value)) return false;
    }
  }
  return true;
}

// Terms are reduced in another order than serially.
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

// --- Recount: element by element, from the plan and the table alone -------------

bool Inside(const Box& box, const Shape& at) {
  for (size_t d = 0; d < at.size(); ++d) {
    if (at[d] < box.begin[d] || at[d] >= box.end[d]) return false;
  }
  return true;
}

// What one worker does of one operator.
class Part {
 public:
  Part(const MockGraph& mock, const Plan& plan, int node, int worker)
      : mock_(mock),
        row_(mock.table.row(node)),
        node_(node),
        cuts_(plan.op_cuts[node]),
        digits_(WorkerDigits(worker, plan.parts)) {
    if (row_ == nullptr) return;
    ranges_ = VarRanges(*row_, mock.graph, node, cuts_, plan.parts, digits_);
  }

  bool idle() const {
    for (size_t step = 0; step < cuts_.size(); ++step) {
      if (row_ != nullptr && row_->random && cuts_[step] == kReplicated &&
          digits_[step] != 0) {
        return true;
      }
    }
    return false;
  }

  bool Needs(size_t slot, const Shape& at) const {
    if (idle()) return false;
    if (row_ == nullptr) return true;
    for (int var : row_->inputs[slot].only_first) {
      if (ranges_[var].begin != 0) return false;
    }
    return Touches(row_->inputs[slot].dims, at);
  }

  bool Produces(int output, const Shape& at) const {
    if (idle()) return false;
    return row_ == nullptr || Touches(row_->outputs[output].dims, at);
  }

  // The digits of the steps that split a variable which `output` reduces.
  std::vector<int> ReduceDigits(int output) const {
    std::vector<int> digits;
    for (size_t step = 0; row_ != nullptr && step < cuts_.size(); ++step) {
      if (row_->outputs[output].reduce.count(cuts_[step]) > 0) {
        digits.push_back(digits_[step]);
      }
    }
    return digits;
  }

 private:
  bool Touches(const std::vector<DimAccess>& dims, const Shape& at) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      bool moves = false;
      int64_t low = dims[d].lo.constant;
      for (const auto& term : dims[d].lo.terms) {
        moves |= std::count(cuts_.begin(), cuts_.end(), term.var) > 0;
        low += term.coef *
               (term.upper ? ranges_[term.var].end - 1 : ranges_[term.var].begin);
      }
      int64_t high = dims[d].hi.constant;
      for (const auto& term : dims[d].hi.terms) {
        high += term.coef *
                (term.upper ? ranges_[term.var].end - 1 : ranges_[term.var].begin);
      }
      if (moves && (at[d] < low || at[d] > high)) return false;
    }
    return true;
  }

  const MockGraph& mock_;
  const StrategyRow* row_;
  const int node_;
  const std::vector<int>& cuts_;
  const std::vector<int> digits_;
  std::vector<Range> ranges_;
};

int64_t RecountedBytes(const MockGraph& mock, const Plan& plan) {
  const Graph& graph = mock.graph;
  const std::vector<bool> used = UsedEntries(graph);
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    std::vector<bool> outputs(used.begin() + graph.first_entry[node],
                              used.begin() + graph.first_entry[node + 1]);
    if (std::count(outputs.begin(), outputs.end(), true) == 0) continue;
    std::vector<Part> parts;
    for (int w = 0; w < plan.workers(); ++w) parts.emplace_back(mock, plan, node, w);
    for (int w = 0; w < plan.workers(); ++w) {
      const auto tile = [&](NodeEntry entry) {
        return TileBox(graph.shape(entry), plan.tensor_cuts[graph.entry_id(entry)],
                       plan.parts, WorkerDigits(w, plan.parts));
      };
      for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
        const Box owned = tile(n.inputs[slot]);
        ForEachIndex(WholeBox(graph.shape(n.inputs[slot])), [&](const Shape& at) {
          if (!parts[w].Needs(slot, at) || Inside(owned, at)) return;
          bytes += DtypeBytes(graph.dtype(n.inputs[slot]));
        });
      }
      for (int output = 0; output < n.num_outputs; ++output) {
        if (!outputs[output]) continue;
        std::set<std::vector<int>> terms;
        for (const Part& part : parts) terms.insert(part.ReduceDigits(output));
        const int64_t remote_terms = static_cast<int64_t>(terms.size()) - 1;
        ForEachIndex(tile({node, output}), [&](const Shape& at) {
          const int64_t own = parts[w].Produces(output, at) ? 0 : 1;
          bytes += (remote_terms + own) * DtypeBytes(graph.dtype({node, output}));
        });
      }
    }
  }
  return bytes;
}

// As the search counts them.
int64_t PlannedBytes(const MockGraph& mock, const Plan& plan) {
  const Graph& graph = mock.graph;
  const std::vector<bool> used = UsedEntries(graph);
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (n.is_variable()) continue;
    const OperatorRegions regions(graph, mock.table, node, plan.op_cuts[node],
                                  plan.parts);
    const auto tiles = [&](NodeEntry entry) {
      return TileBoxes(graph.shape(entry), plan.tensor_cuts[graph.entry_id(entry)],
                       plan.parts);
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

// Bytes on the edges between workers.
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

// With MultiFetch, only one number at a time crosses.
void ExpectHandlesAlone(const Partitioned& partitioned) {
  const Graph& graph = partitioned.graph;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (partitioned.node_workers[input.node] == partitioned.node_workers[node])
        continue;
      EXPECT_EQ(graph.shape(input), Shape{1}) << graph.nodes[node].name;
      EXPECT_EQ(graph.dtype(input), 6) << graph.nodes[node].name;
    }
  }
}

// --- One random case --------------------------------------------------------------

void ExpectHeads(const MockGraph& mock, const std::vector<Array>& serial,
                 const PhaseGraph& phase, const std::vector<Array>& values,
                 const std::string& kind) {
  size_t next = 0;
  for (size_t h = 0; h < mock.graph.heads.size(); ++h) {
    if (mock.graph.head_roles[h].substr(0, kind.size()) != kind) continue;
    const Array& whole = serial[mock.graph.entry_id(mock.graph.heads[h])];
    ASSERT_LT(next, phase.heads.size());
    const PartitionedHead& head = phase.heads[next++];
    for (const HeadTile& tile : head.tiles) {
      const NodeEntry entry = phase.graph.heads[tile.head];
      EXPECT_TRUE(Close(Crop(whole, tile.box), values[phase.graph.entry_id(entry)]))
          << "head " << h << " (" << kind << ") differs on worker " << tile.worker;
    }
  }
  EXPECT_EQ(next, phase.heads.size());
}

void ExpectPhasesEqualSerial(const MockGraph& mock, const Partitioned& partitioned,
                             const std::map<std::string, Array>& whole,
                             const std::vector<Array>& serial) {
  const Phases phases = SplitPhases(partitioned);
  std::map<std::string, Array> variables = TileValues(phases.variables, whole);
  ExpectTilesRetired(phases.forward.graph);
  const std::vector<Array> forward = RunGraph(phases.forward.graph, variables);
  ExpectHeads(mock, serial, phases.forward, forward, "output");
  if (!phases.backward) return;
  for (const SavedEntry& saved : phases.saved) {
    const NodeEntry entry = phases.forward.graph.heads[saved.forward_head];
    const bool added =
        variables.emplace(saved.name, forward[phases.forward.graph.entry_id(entry)])
            .second;
    EXPECT_TRUE(added) << saved.name << " is the name of two variables";
  }
  ExpectTilesRetired(phases.backward->graph);
  const std::vector<Array> backward = RunGraph(phases.backward->graph, variables);
  ExpectHeads(mock, serial, *phases.backward, backward, "gradient");
}

class PartitionRandom : public testing::TestWithParam<std::vector<int>> {};

TEST_P(PartitionRandom, ComputesAndFetchesWhatTheSerialGraphAndThePlanSay) {
  int compared = 0;
  int64_t shared = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MockGraph mock = RandomGraph(&random);
    const Plan plan = RandomPlan(mock, GetParam(), &random);
    const auto whole = RandomValues(mock.graph, &random);
    const std::vector<Array> serial = RunGraph(mock.graph, whole);
    const Partitioned partitioned = PartitionGraph(mock.graph, mock.table, plan);
    SCOPED_TRACE(DumpGraph(mock.graph));
    const auto& fetched = partitioned.fetched_bytes_per_worker;
    const int64_t total = std::accumulate(fetched.begin(), fetched.end(), int64_t{0});
    EXPECT_EQ(total, RecountedBytes(mock, plan));
    EXPECT_EQ(total, PlannedBytes(mock, plan));
    EXPECT_EQ(total, CrossingBytes(partitioned));
    if (!AllFinite(serial)) continue;
    ++compared;
    ExpectPhasesEqualSerial(mock, partitioned, whole, serial);
    const Partitioned multifetch =
        PartitionGraph(mock.graph, mock.table, plan, {{}, FetchKind::kMultiFetch});
    const auto& fewer = multifetch.fetched_bytes_per_worker;
    EXPECT_EQ(std::accumulate(fewer.begin(), fewer.end(), multifetch.shared_bytes),
              total);
    shared += multifetch.shared_bytes;
    EXPECT_EQ(partitioned.shared_bytes, 0);
    ExpectHandlesAlone(multifetch);
    ExpectPhasesEqualSerial(mock, multifetch, whole, serial);
    if (HasFailure()) return;  // the first failing case says enough
  }
  EXPECT_GT(compared, kSeeds / 2);
  EXPECT_EQ(shared > 0, !GetParam().empty());
}

INSTANTIATE_TEST_SUITE_P(Workers, PartitionRandom,
                         testing::Values(std::vector<int>{}, std::vector<int>{2},
                                         std::vector<int>{3}, std::vector<int>{2, 2},
                                         std::vector<int>{3, 2},
                                         std::vector<int>{2, 2, 2}),
                         [](const auto& suite) {
                           int k = 1;
                           for (int p : suite.param) k *= p;
                           return "k" + std::to_string(k);
                         });

}  // namespace
}  // namespace tofu
