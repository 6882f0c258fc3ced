#include "passes/simulate/live_memory.h"

#include <algorithm>
#include <cmath>

namespace tofu {
namespace {

struct Use {
  double begin_s = 0;
  double end_s = 0;
  int64_t bytes = 0;
  int worker = -1;  // -1: the tensor is not counted
};

struct Change {
  double time_s = 0;
  int64_t bytes = 0;
};

class Uses {
 public:
  Uses(const BoundGraph& bound, const MemoryTable& table, const std::vector<int>& blocks,
       const Operations& operations, const Execution& execution)
      : bound_(bound),
        graph_(bound.graph),
        table_(table),
        blocks_(blocks),
        operations_(operations),
        execution_(execution),
        owner_(static_cast<size_t>(graph_.num_entries())),
        uses_(static_cast<size_t>(graph_.num_entries())) {}

  std::vector<Use> Run() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i) {
        const int entry = graph_.entry_id({node, i});
        owner_[entry] = entry;
      }
      if (!graph_.nodes[node].is_variable()) Visit(node);
    }
    for (NodeEntry head : graph_.heads) {
      uses_[owner_[graph_.entry_id(head)]].end_s = execution_.step_s;
    }
    return std::move(uses_);
  }

 private:
  void Visit(int node) {
    const Node& n = graph_.nodes[node];
    const Ran& ran = execution_.ran[operations_.node_operations[node]];
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (Ignores(node, i)) continue;
      double& end = uses_[owner_[graph_.entry_id(n.inputs[i])]].end_s;
      end = std::max(end, ran.end_s);
    }
    for (int i = 0; i < n.num_outputs; ++i) {
      const int entry = graph_.entry_id({node, i});
      if (blocks_[entry] < 0) continue;
      owner_[entry] = TakenOver(node, entry);
      Use& use = uses_[owner_[entry]];
      use.end_s = std::max(use.end_s, ran.end_s);
      if (owner_[entry] != entry) continue;
      use.begin_s = ran.begin_s;
      use.worker = bound_.workers[node];
      use.bytes = NumElements(graph_.shapes[entry]) * DtypeBytes(graph_.dtypes[entry]);
    }
  }

  bool Ignores(int node, size_t input) const {
    const int source = bound_.sources[node];
    const int rule =
        source < 0 || table_.node_rules.empty() ? -1 : table_.node_rules[source];
    if (rule < 0) return false;
    const std::vector<int>& ignored = table_.rules[rule].ignored_inputs;
    return std::count(ignored.begin(), ignored.end(), static_cast<int>(input)) > 0;
  }

  // The tensor whose memory an output uses: its own, or an input's in the same block.
  int TakenOver(int node, int entry) const {
    for (size_t i = 0; i < graph_.nodes[node].inputs.size(); ++i) {
      const int input = graph_.entry_id(graph_.nodes[node].inputs[i]);
      if (blocks_[input] == blocks_[entry] && !Ignores(node, i)) return owner_[input];
    }
    return entry;
  }

  const BoundGraph& bound_;
  const Graph& graph_;
  const MemoryTable& table_;
  const std::vector<int>& blocks_;
  const Operations& operations_;
  const Execution& execution_;
  std::vector<int> owner_;  // [entry]: the entry whose use it prolongs
  std::vector<Use> uses_;   // [entry]
};

// The maximum of a running sum in each of `moments` equal parts of `step_s`.
std::vector<int64_t> Most(std::vector<Change> changes, double step_s, int moments) {
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.bytes < b.bytes;
  });
  std::vector<int64_t> most(static_cast<size_t>(moments), 0);
  int64_t live = 0;
  size_t next = 0;
  for (int moment = 0; moment < moments; ++moment) {
    const double end = step_s * (moment + 1) / moments;
    most[moment] = live;
    const bool is_last = moment + 1 == moments;
    for (; next < changes.size() && (is_last || changes[next].time_s < end); ++next) {
      live += changes[next].bytes;
      most[moment] = std::max(most[moment], live);
    }
  }
  return most;
}

}  // namespace

std::vector<std::vector<int64_t>> LiveMemory(
    const BoundGraph& bound, const MemoryTable& table, const std::vector<int>& blocks,
    const Operations& operations, const Execution& execution, int workers, int moments) {
  std::vector<std::vector<Change>> changes(static_cast<size_t>(workers));
  for (const Use& use : Uses(bound, table, blocks, operations, execution).Run()) {
    if (use.worker < 0) continue;
    changes[use.worker].push_back({use.begin_s, use.bytes});
    changes[use.worker].push_back({use.end_s, -use.bytes});
  }
  std::vector<std::vector<int64_t>> live;
  for (std::vector<Change>& worker_changes : changes) {
    live.push_back(Most(std::move(worker_changes), execution.step_s, moments));
  }
  return live;
}

}  // namespace tofu
