#include "passes/schedule/join_phases.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

class Joiner {
 public:
  explicit Joiner(Phases phases) : phases_(std::move(phases)) {}

  JointGraph Run() {
    const Graph& forward = phases_.forward.graph;
    const Graph& backward = phases_.backward->graph;
    joint_.graph.nodes.reserve(forward.nodes.size() + backward.nodes.size());
    joint_.graph.shapes.reserve(forward.shapes.size() + backward.shapes.size());
    Append({}, &phases_.forward.graph);
    std::map<std::string, NodeEntry> known;
    for (int node = 0; node < joint_.graph.num_nodes(); ++node) {
      const Node& n = joint_.graph.nodes[node];
      if (n.is_variable()) known.emplace(n.name, NodeEntry{node, 0});
    }
    std::set<int> saved;
    for (const SavedEntry& entry : phases_.saved) {
      known[entry.name] = forward.heads[entry.forward_head];
      saved.insert(entry.forward_head);
    }
    AddHeads(forward, phases_.forward.heads, saved, &joint_.forward_heads);
    Append(known, &phases_.backward->graph);
    AddHeads(backward, phases_.backward->heads, {}, &joint_.backward_heads);
    IndexEntries(&joint_.graph);
    return std::move(joint_);
  }

 private:
  // Moves the nodes of `graph` here; entries in `known` replace the variables they name.
  void Append(const std::map<std::string, NodeEntry>& known, Graph* graph) {
    moved_.assign(graph->nodes.size(), NodeEntry{});
    for (int number = 0; number < graph->num_nodes(); ++number) {
      Node node = std::move(graph->nodes[number]);
      const auto found = node.is_variable() ? known.find(node.name) : known.end();
      if (found != known.end()) {
        moved_[number] = found->second;
        continue;
      }
      for (NodeEntry& input : node.inputs) input = Moved(input);
      for (int& dependency : node.control_deps) dependency = moved_[dependency].node;
      for (int i = 0; i < node.num_outputs; ++i) {
        joint_.graph.shapes.push_back(
            std::move(graph->shapes[graph->entry_id({number, i})]));
        joint_.graph.dtypes.push_back(graph->dtype({number, i}));
      }
      moved_[number] = {joint_.graph.num_nodes(), 0};
      joint_.graph.nodes.push_back(std::move(node));
    }
  }

  NodeEntry Moved(NodeEntry entry) const {
    return {moved_[entry.node].node, moved_[entry.node].index + entry.index};
  }

  // Adds the heads of a phase, without those that are only saved.
  void AddHeads(const Graph& graph, const std::vector<PartitionedHead>& named,
                std::set<int> saved, std::vector<PartitionedHead>* heads) {
    for (const PartitionedHead& head : named) {
      for (const HeadTile& tile : head.tiles) saved.erase(tile.head);
    }
    std::vector<int> numbers;
    for (size_t h = 0; h < graph.heads.size(); ++h) {
      numbers.push_back(static_cast<int>(joint_.graph.heads.size()));
      if (saved.count(static_cast<int>(h)) > 0) continue;
      joint_.graph.heads.push_back(Moved(graph.heads[h]));
    }
    *heads = named;
    for (PartitionedHead& head : *heads) {
      for (HeadTile& tile : head.tiles) tile.head = numbers[tile.head];
    }
  }

  Phases phases_;
  std::vector<NodeEntry>
      moved_;  // [node of a phase]: its first output in the joint graph
  JointGraph joint_;
};

}  // namespace

JointGraph JoinPhases(Phases phases) {
  TOFU_CHECK(phases.backward.has_value()) << "phases without a backward half";
  return Joiner(std::move(phases)).Run();
}

}  // namespace tofu
