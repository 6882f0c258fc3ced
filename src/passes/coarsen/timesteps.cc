#include "passes/coarsen/timesteps.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/union_find.h"
#include "graph/head_roles.h"

namespace tofu {
namespace {

// Whether an attribute only says how an operator is presented or placed.
bool IsDecoration(const std::string& attr) { return attr.compare(0, 2, "__") == 0; }

void AppendTensor(const Graph& graph, NodeEntry entry, std::string* text) {
  *text += std::to_string(graph.dtype(entry)) + ':';
  for (int64_t extent : graph.shape(entry)) *text += std::to_string(extent) + ',';
  *text += ';';
}

std::string SignatureText(const Graph& graph, const StrategyTable& table, int node) {
  const Node& n = graph.nodes[node];
  std::string text = n.op.text() + '\n' + std::to_string(table.node_rows[node]) + '\n';
  for (const auto& [key, value] : n.attrs) {
    if (IsDecoration(key)) continue;
    text += key;
    text += '=';
    text += value;
    text += '\n';
  }
  for (NodeEntry input : n.inputs) AppendTensor(graph, input, &text);
  text += '>';
  for (int i = 0; i < n.num_outputs; ++i) AppendTensor(graph, {node, i}, &text);
  return text;
}

// Whether a node is a variable that holds one value for all timesteps. Variables without
// roles count as such, which only merges less.
bool IsShared(const Node& node) {
  if (!node.is_variable()) return false;
  const std::string role = VariableRole(node);
  return role.empty() || role == "parameter" || role == "aux";
}

class Aligner {
  using Slots = std::vector<std::pair<int, int>>;  // (slot, node)

 public:
  Aligner(const Graph& graph, const Groups& groups, const std::vector<int>& signatures)
      : graph_(graph),
        signatures_(signatures),
        consumers_(static_cast<size_t>(graph.num_entries())),
        backward_(graph.nodes.size()),
        classes_(graph.num_nodes()) {
    std::map<Slots, int> numbers = {{Slots(), kNone}};
    for (int node = 0; node < graph.num_nodes(); ++node) {
      const Node& n = graph.nodes[node];
      Slots shared;
      for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
        consumers_[graph.entry_id(n.inputs[slot])].emplace_back(node,
                                                                static_cast<int>(slot));
        if (IsShared(graph.nodes[n.inputs[slot].node])) {
          shared.emplace_back(slot, n.inputs[slot].node);
        }
      }
      const int next = static_cast<int>(numbers.size());
      shared_.push_back(numbers.emplace(std::move(shared), next).first->second);
      const int group = groups.op_group[node];
      if (group >= 0 && group != node) backward_[group].push_back(node);
    }
  }

  std::vector<int> Run() {
    Seed();
    // Every merge appends one pair, so the loop ends after N - 1 pairs.
    for (size_t next = 0; next < merged_.size(); ++next) {
      const auto [a, b] = merged_[next];
      AlignProducers(a, b);
      AlignConsumers(a, b);
      AlignBackward(a, b);
    }
    std::vector<int> representatives;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      representatives.push_back(classes_.Find(node));
    }
    return representatives;
  }

 private:
  // A consumer's place: its signature, its parameters, and the slot at which it reads.
  using Place = std::tuple<int, int, int>;
  static constexpr int kNone = 0;

  void TryMerge(int a, int b) {
    if (signatures_[a] < 0 || signatures_[a] != signatures_[b]) return;
    if (shared_[a] == shared_[b] && classes_.Merge(a, b)) merged_.emplace_back(a, b);
  }

  void Seed() {
    std::map<std::pair<int, int>, int> first;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (signatures_[node] < 0 || shared_[node] == kNone) continue;
      const auto [it, is_new] =
          first.emplace(std::pair(signatures_[node], shared_[node]), node);
      if (!is_new) TryMerge(it->second, node);
    }
  }

  void AlignProducers(int a, int b) {
    const std::vector<NodeEntry>& inputs_a = graph_.nodes[a].inputs;
    const std::vector<NodeEntry>& inputs_b = graph_.nodes[b].inputs;
    for (size_t i = 0; i < inputs_a.size(); ++i) {
      if (inputs_a[i].index == inputs_b[i].index) {
        TryMerge(inputs_a[i].node, inputs_b[i].node);
      }
    }
  }

  // The consumer at each place; -1 if a place has several.
  std::map<Place, int> ByPlace(int entry) const {
    std::map<Place, int> places;
    for (const auto& [node, slot] : consumers_[entry]) {
      const auto [it, is_new] =
          places.emplace(Place{signatures_[node], shared_[node], slot}, node);
      if (!is_new) it->second = -1;
    }
    return places;
  }

  void AlignConsumers(int a, int b) {
    for (int i = 0; i < graph_.nodes[a].num_outputs; ++i) {
      const std::map<Place, int> readers_a = ByPlace(graph_.entry_id({a, i}));
      const std::map<Place, int> readers_b = ByPlace(graph_.entry_id({b, i}));
      for (const auto& [place, node] : readers_a) {
        const auto it = readers_b.find(place);
        if (it != readers_b.end() && node >= 0 && it->second >= 0)
          TryMerge(node, it->second);
      }
    }
  }

  // The backward operators of forward operator `node` by signature, in order.
  std::map<int, std::vector<int>> BackwardOf(int node) const {
    std::map<int, std::vector<int>> by_signature;
    for (int backward : backward_[node]) {
      by_signature[signatures_[backward]].push_back(backward);
    }
    return by_signature;
  }

  void AlignBackward(int a, int b) {
    const std::map<int, std::vector<int>> backward_a = BackwardOf(a);
    const std::map<int, std::vector<int>> backward_b = BackwardOf(b);
    for (const auto& [signature, nodes] : backward_a) {
      const auto it = backward_b.find(signature);
      if (it == backward_b.end() || it->second.size() != nodes.size()) continue;
      for (size_t i = 0; i < nodes.size(); ++i) TryMerge(nodes[i], it->second[i]);
    }
  }

  const Graph& graph_;
  const std::vector<int>& signatures_;
  std::vector<Slots> consumers_;            // [entry]: (node, slot)
  std::vector<std::vector<int>> backward_;  // [forward node]
  std::vector<int> shared_;                 // [node]: number of its parameters' list
  UnionFind classes_;
  std::vector<std::pair<int, int>> merged_;
};

}  // namespace

std::vector<int> Signatures(const Graph& graph, const StrategyTable& table) {
  std::map<std::string, int> numbers;
  std::vector<int> signatures(graph.nodes.size(), -1);
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable()) continue;
    const int next = static_cast<int>(numbers.size());
    signatures[node] =
        numbers.emplace(SignatureText(graph, table, node), next).first->second;
  }
  return signatures;
}

std::vector<int> AlignTimesteps(const Graph& graph, const Groups& groups,
                                const std::vector<int>& signatures) {
  return Aligner(graph, groups, signatures).Run();
}

}  // namespace tofu
