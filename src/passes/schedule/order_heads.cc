#include "passes/schedule/order_heads.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/head_roles.h"
#include "passes/memory/bound_graph.h"
#include "passes/partition/partitioned.h"

namespace tofu {
namespace {

constexpr int64_t kLeastSaved = 8;  // an eighth

// Adds up the bytes alive on each worker while an executor runs a graph. Of the variables
// only those in `saved` count, which live until they are read; of the heads those that
// are not `in_place`.
class AliveBytes {
 public:
  AliveBytes(Graph graph, const std::vector<int>& node_workers, int workers,
             const std::set<std::string>& saved, const std::vector<bool>& in_place)
      : bound_(OrderAsBound(std::move(graph), node_workers)),
        graph_(bound_.graph),
        saved_(saved),
        is_in_place_(static_cast<size_t>(graph_.num_entries()), false),
        dying_(graph_.nodes.size()),
        alive_(static_cast<size_t>(workers), 0) {
    for (size_t h = 0; h < graph_.heads.size(); ++h) {
      if (in_place[h]) is_in_place_[graph_.entry_id(graph_.heads[h])] = true;
    }
    FindEnds();
  }

  // The most on a worker at any time.
  int64_t Peak() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (IsSaved(node)) Add(node);
    }
    int64_t peak = 0;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!graph_.nodes[node].is_variable()) Add(node);
      peak = std::max(peak, alive_[bound_.workers[node]]);
      for (NodeEntry entry : dying_[node]) {
        alive_[bound_.workers[entry.node]] -= Bytes(entry);
      }
    }
    return peak;
  }

 private:
  bool IsSaved(int node) const {
    const Node& n = graph_.nodes[node];
    return n.is_variable() && saved_.count(n.name) > 0;
  }

  int64_t Bytes(NodeEntry entry) const {
    if (is_in_place_[graph_.entry_id(entry)]) return 0;
    return NumElements(graph_.shape(entry)) * DtypeBytes(graph_.dtype(entry));
  }

  void Add(int node) {
    for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
      alive_[bound_.workers[node]] += Bytes({node, i});
    }
  }

  // The last reader of each tensor frees it, or its own node if there is none. Heads
  // stay.
  void FindEnds() {
    std::vector<int> last(static_cast<size_t>(graph_.num_entries()), 0);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      for (int i = 0; i < n.num_outputs; ++i) last[graph_.entry_id({node, i})] = node;
      for (NodeEntry input : n.inputs) last[graph_.entry_id(input)] = node;
    }
    for (NodeEntry head : graph_.heads) last[graph_.entry_id(head)] = -1;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].is_variable() && !IsSaved(node)) continue;
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int end = last[graph_.entry_id({node, i})];
        if (end >= 0) dying_[end].push_back({node, i});
      }
    }
  }

  const BoundGraph bound_;
  const Graph& graph_;
  const std::set<std::string>& saved_;
  std::vector<bool> is_in_place_;              // [entry]
  std::vector<std::vector<NodeEntry>> dying_;  // [node]: entries that it reads last
  std::vector<int64_t> alive_;                 // [worker]
};

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

void OrderHeads(bool joint, Phases* phases) {
  PhaseGraph& backward = *phases->backward;
  const std::vector<NodeEntry> heads = backward.graph.heads;
  const std::vector<int> numbers = NumbersInOrder(heads);
  std::vector<bool> in_place(heads.size(), false);
  for (const PartitionedHead& head : backward.heads) {
    for (const HeadTile& tile : head.tiles) {
      in_place[tile.head] = IsWrittenInPlace(head.role);
    }
  }
  const auto in_order = [&](auto values) {
    const auto given = values;
    for (size_t h = 0; h < given.size(); ++h) values[numbers[h]] = given[h];
    return values;
  };
  std::set<std::string> saved;
  for (const SavedEntry& entry : phases->saved) {
    if (joint) saved.insert(entry.name);
  }
  const std::vector<int> workers = NodeWorkers(backward.graph, phases->workers);
  Graph outline = OutlineOf(backward.graph);
  const auto peak = [&](Graph graph, const std::vector<bool>& without) {
    return AliveBytes(std::move(graph), workers, phases->workers, saved, without).Peak();
  };
  const int64_t before = peak(outline, in_place);
  outline.heads = in_order(heads);
  const int64_t after = peak(std::move(outline), in_order(in_place));
  if (before - after < before / kLeastSaved) return;
  backward.graph.heads = in_order(heads);
  for (PartitionedHead& head : backward.heads) {
    for (HeadTile& tile : head.tiles) tile.head = numbers[tile.head];
  }
}

}  // namespace tofu
