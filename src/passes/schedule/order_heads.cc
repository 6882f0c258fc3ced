#include "passes/schedule/order_heads.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mxnet/dialect.h"
#include "passes/memory/bound_graph.h"
#include "passes/partition/emit_multifetch.h"
#include "passes/partition/partitioned.h"

namespace tofu {
namespace {

// The graph without what its order and its bytes do not depend on.
Graph Outline(const Graph& graph) {
  Graph outline;
  outline.nodes.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    outline.nodes.push_back({node.op, node.is_variable() ? node.name : "", {},
                             node.inputs, node.control_deps, node.num_outputs});
    if (IsDirect(node)) outline.nodes.back().attrs[kDirectAttr] = "1";
  }
  outline.heads = graph.heads;
  outline.first_entry = graph.first_entry;
  outline.shapes = graph.shapes;
  outline.dtypes = graph.dtypes;
  return outline;
}

// The most bytes alive on a worker. Of the variables only those in `saved` count, which
// live until they are read.
int64_t PeakBytes(const Graph& graph, const std::vector<int>& node_workers, int workers,
                  const std::set<std::string>& saved) {
  const BoundGraph bound = OrderAsBound(graph, node_workers);
  const Graph& ordered = bound.graph;
  const auto bytes = [&](int entry) {
    return NumElements(ordered.shapes[entry]) * DtypeBytes(ordered.dtypes[entry]);
  };
  std::vector<int> last(static_cast<size_t>(ordered.num_entries()), -1);
  for (int node = 0; node < ordered.num_nodes(); ++node) {
    const Node& n = ordered.nodes[node];
    const bool stays = n.is_variable() && saved.count(n.name) == 0;
    for (int i = 0; i < n.num_outputs; ++i) {
      last[ordered.entry_id({node, i})] = stays ? -1 : node;
    }
    for (NodeEntry input : n.inputs) {
      int& of_input = last[ordered.entry_id(input)];
      if (of_input >= 0) of_input = node;
    }
  }
  for (NodeEntry head : ordered.heads) last[ordered.entry_id(head)] = ordered.num_nodes();
  std::vector<std::vector<std::pair<int, int>>> dying(
      static_cast<size_t>(ordered.num_nodes() + 1));  // [node]: worker, entry
  std::vector<int64_t> alive(static_cast<size_t>(workers), 0);
  for (int node = 0; node < ordered.num_nodes(); ++node) {
    for (int i = 0; i < ordered.nodes[node].num_outputs; ++i) {
      const int entry = ordered.entry_id({node, i});
      if (last[entry] < 0) continue;
      dying[last[entry]].emplace_back(bound.workers[node], entry);
      if (ordered.nodes[node].is_variable()) alive[bound.workers[node]] += bytes(entry);
    }
  }
  int64_t peak = 0;
  for (int node = 0; node < ordered.num_nodes(); ++node) {
    int64_t& of_worker = alive[bound.workers[node]];
    for (int i = 0; i < ordered.nodes[node].num_outputs; ++i) {
      const int entry = ordered.entry_id({node, i});
      if (!ordered.nodes[node].is_variable()) of_worker += bytes(entry);
    }
    peak = std::max(peak, of_worker);
    for (const auto& [worker, entry] : dying[node]) alive[worker] -= bytes(entry);
  }
  return peak;
}

// [head]: its number if heads are in the order of their nodes.
std::vector<int> NumbersInOrder(const std::vector<NodeEntry>& heads) {
  std::vector<int> order(heads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return heads[a].node < heads[b].node; });
  std::vector<int> numbers(order.size());
  for (size_t i = 0; i < order.size(); ++i) numbers[order[i]] = static_cast<int>(i);
  return numbers;
}

}  // namespace

void OrderHeads(Phases* phases) {
  PhaseGraph& backward = *phases->backward;
  const std::vector<NodeEntry>& heads = backward.graph.heads;
  const std::vector<int> numbers = NumbersInOrder(heads);
  std::vector<NodeEntry> sorted(heads.size());
  for (size_t h = 0; h < heads.size(); ++h) sorted[numbers[h]] = heads[h];
  std::set<std::string> saved;
  for (const SavedEntry& entry : phases->saved) saved.insert(entry.name);
  const std::vector<int> workers = NodeWorkers(backward.graph, phases->workers);
  Graph outline = Outline(backward.graph);
  const int64_t before = PeakBytes(outline, workers, phases->workers, saved);
  outline.heads = sorted;
  if (PeakBytes(outline, workers, phases->workers, saved) > before) return;
  backward.graph.heads = std::move(sorted);
  for (PartitionedHead& head : backward.heads) {
    for (HeadTile& tile : head.tiles) tile.head = numbers[tile.head];
  }
}

}  // namespace tofu
