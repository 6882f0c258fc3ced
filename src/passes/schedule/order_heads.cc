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

constexpr int64_t kLeastSaved = 8;  // an eighth of the memory

// Adds up the bytes alive on each worker while an executor runs a graph. Counts only the
// variables in `saved`, which live until they are read, and the heads that are not
// `in_place`.
class AliveBytes {
 public:
  AliveBytes(const Graph& graph, const std::vector<int>& node_workers, int workers,
             const std::set<std::string>& saved)
      : graph_(graph), node_workers_(node_workers), workers_(workers) {
    for (const Node& node : graph.nodes) {
      is_saved_.push_back(node.is_variable() && saved.count(node.name) > 0);
    }
    for (int entry = 0; entry < graph.num_entries(); ++entry) {
      bytes_.push_back(NumElements(graph.shapes[entry]) *
                       DtypeBytes(graph.dtypes[entry]));
    }
  }

  // The bytes alive on the fullest worker at its peak, with the heads in this order.
  int64_t Peak(const std::vector<NodeEntry>& heads, const std::vector<bool>& in_place) {
    const BoundOrder order = OrderOf(graph_, node_workers_, heads);
    std::vector<int64_t> bytes;  // [entry of the order]
    bytes.reserve(order.entry_sources.size());
    for (int entry : order.entry_sources) bytes.push_back(bytes_[entry]);
    for (size_t h = 0; h < heads.size(); ++h) {
      if (in_place[h]) bytes[order.heads[h]] = 0;
    }
    std::vector<int64_t> alive(static_cast<size_t>(workers_), 0);
    const auto add = [&](int place) {
      for (int e = order.first_entry[place]; e < order.first_entry[place + 1]; ++e) {
        alive[order.workers[place]] += bytes[e];
      }
    };
    for (int place = 0; place < order.size(); ++place) {
      if (IsSaved(order, place)) add(place);
    }
    const std::vector<std::vector<int>> dying = Dying(order);
    int64_t peak = 0;
    for (int place = 0; place < order.size(); ++place) {
      if (!IsVariable(order, place)) add(place);
      peak = std::max(peak, alive[order.workers[place]]);
      for (int entry : dying[place]) {
        alive[order.workers[order.place(entry)]] -= bytes[entry];
      }
    }
    return peak;
  }

 private:
  bool IsVariable(const BoundOrder& order, int place) const {
    const int node = order.sources[place];
    return node >= 0 && graph_.nodes[node].is_variable();
  }

  bool IsSaved(const BoundOrder& order, int place) const {
    const int node = order.sources[place];
    return node >= 0 && is_saved_[node];
  }

  // [place]: the entries, except heads, of which it is the last reader, or its own
  // entries that have no reader.
  std::vector<std::vector<int>> Dying(const BoundOrder& order) const {
    std::vector<int> last(order.entry_sources.size(), 0);
    for (int place = 0; place < order.size(); ++place) {
      for (int e = order.first_entry[place]; e < order.first_entry[place + 1]; ++e) {
        last[e] = place;
      }
      for (size_t i = order.first_read[place]; i < order.first_read[place + 1]; ++i) {
        last[order.reads[i]] = place;
      }
    }
    for (int head : order.heads) last[head] = -1;
    std::vector<std::vector<int>> dying(order.sources.size());
    for (int place = 0; place < order.size(); ++place) {
      if (IsVariable(order, place) && !IsSaved(order, place)) continue;
      for (int e = order.first_entry[place]; e < order.first_entry[place + 1]; ++e) {
        if (last[e] >= 0) dying[last[e]].push_back(e);
      }
    }
    return dying;
  }

  const Graph& graph_;
  const std::vector<int>& node_workers_;
  const int workers_;
  std::vector<char> is_saved_;  // [node]
  std::vector<int64_t> bytes_;  // [entry]
};

// [head]: its number after sorting heads by their nodes.
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
    const auto original = values;
    for (size_t h = 0; h < original.size(); ++h) values[numbers[h]] = original[h];
    return values;
  };
  std::set<std::string> saved;
  for (const SavedEntry& entry : phases->saved) {
    if (joint) saved.insert(entry.name);
  }
  const std::vector<int> workers = NodeWorkers(backward.graph, phases->workers);
  AliveBytes alive(backward.graph, workers, phases->workers, saved);
  const int64_t before = alive.Peak(heads, in_place);
  const int64_t after = alive.Peak(in_order(heads), in_order(in_place));
  if (before - after < before / kLeastSaved) return;
  backward.graph.heads = in_order(heads);
  for (PartitionedHead& head : backward.heads) {
    for (HeadTile& tile : head.tiles) tile.head = numbers[tile.head];
  }
}

}  // namespace tofu
