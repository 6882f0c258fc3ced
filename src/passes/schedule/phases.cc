#include "passes/schedule/phases.h"

#include <map>
#include <utility>

#include "graph/head_roles.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// The entries that the heads name, by head and worker.
std::vector<NodeEntry> HeadEntries(const Graph& graph,
                                   const std::vector<PartitionedHead>& heads) {
  std::vector<NodeEntry> entries;
  for (const PartitionedHead& head : heads) {
    for (const HeadTile& tile : head.tiles) entries.push_back(graph.heads[tile.head]);
  }
  return entries;
}

// The nodes that the entries need, up to the nodes for which `done` is set. Marks the
// entries of those that are read in `crossing`, unless null.
std::vector<bool> Needed(const Graph& graph, const std::vector<NodeEntry>& entries,
                         const std::vector<bool>& done, std::vector<bool>* crossing) {
  std::vector<bool> needed(graph.num_nodes(), false);
  const auto mark = [&](NodeEntry entry) {
    if (done[entry.node]) {
      (*crossing)[graph.entry_id(entry)] = true;
    } else {
      needed[entry.node] = true;
    }
  };
  for (NodeEntry entry : entries) mark(entry);
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!needed[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) mark(input);
  }
  return needed;
}

// The outputs kept with others: heads of the graph that are no tile of a named head.
std::vector<NodeEntry> KeptEntries(const Partitioned& partitioned) {
  std::vector<bool> named(partitioned.graph.heads.size(), false);
  for (const PartitionedHead& head : partitioned.heads) {
    for (const HeadTile& tile : head.tiles) named[tile.head] = true;
  }
  std::vector<NodeEntry> kept;
  for (size_t h = 0; h < named.size(); ++h) {
    if (!named[h]) kept.push_back(partitioned.graph.heads[h]);
  }
  return kept;
}

// Copies a part of a partitioned graph.
class Copier {
 public:
  explicit Copier(Partitioned& source)
      : source_(source), copies_(source.graph.num_entries(), NodeEntry{-1, 0}) {
    builder_.Reserve(source.graph.num_nodes());
  }

  // Copies a node. With `is_last`, moves all but its operator and name out of the source.
  void CopyNode(int node, bool is_last) {
    Graph& graph = source_.graph;
    Node& source = graph.nodes[node];
    Node copy;
    copy.op = source.op;
    copy.name = source.name;
    copy.num_outputs = source.num_outputs;
    if (is_last) {
      copy.attrs = std::move(source.attrs);
      copy.inputs = std::move(source.inputs);
      copy.control_deps = std::move(source.control_deps);
    } else {
      copy.attrs = source.attrs;
      copy.inputs = source.inputs;
      copy.control_deps = source.control_deps;
    }
    for (NodeEntry& input : copy.inputs) input = copies_[graph.entry_id(input)];
    const int first = graph.first_entry[node];
    const int added = builder_.Add(std::move(copy), source_.node_workers[node],
                                   &graph.shapes[first], &graph.dtypes[first]);
    for (int output = 0; output < graph.nodes[node].num_outputs; ++output) {
      copies_[graph.entry_id({node, output})] = {added, output};
    }
  }

  // Adds a variable for an entry; returns its name.
  std::string AddVariable(NodeEntry entry) {
    const Graph& graph = source_.graph;
    Node variable;
    variable.name = graph.nodes[entry.node].name + "/saved" + std::to_string(entry.index);
    const int added = builder_.Add(std::move(variable), source_.node_workers[entry.node],
                                   {graph.shape(entry)}, {graph.dtype(entry)});
    copies_[graph.entry_id(entry)] = {added, 0};
    return builder_.graph().nodes[added].name;
  }

  // Returns the number of the head that is the copy of `entry`; adds it if it is new.
  int AddHead(NodeEntry entry) {
    const int id = source_.graph.entry_id(entry);
    auto& heads = builder_.graph().heads;
    const auto [found, added] = head_numbers_.emplace(id, static_cast<int>(heads.size()));
    if (added) heads.push_back(copies_[id]);
    return found->second;
  }

  std::vector<PartitionedHead> AddHeads(std::vector<PartitionedHead> heads) {
    for (PartitionedHead& head : heads) {
      for (HeadTile& tile : head.tiles) {
        tile.head = AddHead(source_.graph.heads[tile.head]);
      }
    }
    return heads;
  }

  Graph Take() {
    Graph graph = std::move(builder_.graph());
    if (graph.first_entry.empty()) graph.first_entry = {0};
    return graph;
  }

 private:
  Partitioned& source_;
  std::vector<NodeEntry> copies_;    // per entry of the source
  std::map<int, int> head_numbers_;  // by entry of the source
  GraphBuilder builder_;
};

}  // namespace

Phases SplitPhases(Partitioned partitioned) {
  const Graph& graph = partitioned.graph;
  std::vector<PartitionedHead> outputs;
  std::vector<PartitionedHead> others;
  for (const PartitionedHead& head : partitioned.heads) {
    (head.role == kOutputRole ? outputs : others).push_back(head);
  }
  Phases phases;
  phases.workers = partitioned.workers;
  phases.variables = partitioned.variables;

  std::vector<bool> computed(graph.num_nodes(), false);
  const std::vector<bool> forward_nodes =
      Needed(graph, HeadEntries(graph, outputs), computed, nullptr);
  Copier forward(partitioned);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!forward_nodes[node]) continue;
    computed[node] = !graph.nodes[node].is_variable();
    forward.CopyNode(node, computed[node]);
  }
  phases.forward.heads = forward.AddHeads(outputs);
  if (!others.empty()) {
    std::vector<bool> crossing(graph.num_entries(), false);
    const std::vector<bool> backward_nodes =
        Needed(graph, HeadEntries(graph, others), computed, &crossing);
    Copier backward(partitioned);
    for (int node = 0; node < graph.num_nodes(); ++node) {
      if (backward_nodes[node]) backward.CopyNode(node, true);
      for (int output = 0; output < graph.nodes[node].num_outputs; ++output) {
        const NodeEntry entry{node, output};
        if (!crossing[graph.entry_id(entry)]) continue;
        phases.saved.push_back({backward.AddVariable(entry), forward.AddHead(entry),
                                partitioned.node_workers[node]});
      }
    }
    PhaseGraph phase;
    phase.heads = backward.AddHeads(others);
    for (NodeEntry entry : KeptEntries(partitioned)) {
      if (backward_nodes[entry.node]) backward.AddHead(entry);
    }
    phase.graph = backward.Take();
    phases.backward = std::move(phase);
  }
  for (NodeEntry entry : KeptEntries(partitioned)) {
    if (forward_nodes[entry.node]) forward.AddHead(entry);
  }
  phases.forward.graph = forward.Take();
  return phases;
}

std::string DumpPhases(const Phases& phases) {
  std::string text = "forward\n" + DumpGraph(phases.forward.graph);
  if (!phases.backward) return text + "\nno backward\n";
  text += "\nbackward\n" + DumpGraph(phases.backward->graph) + "\n";
  for (const SavedEntry& saved : phases.saved) {
    text += "saved  " + saved.name + "  worker" + std::to_string(saved.worker) +
            "  forward head " + std::to_string(saved.forward_head) + "\n";
  }
  return text;
}

}  // namespace tofu
