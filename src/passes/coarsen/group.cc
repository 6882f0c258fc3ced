#include "passes/coarsen/group.h"

#include <algorithm>
#include <map>
#include <string>

#include "graph/head_roles.h"
#include "graph/lives/repeats.h"
#include "passes/coarsen/elementwise.h"

namespace tofu {
namespace {

// Marks the ancestors, through inputs only, of the heads whose role `accepts` takes.
template <typename Predicate>
std::vector<bool> Ancestors(const Graph& graph, Predicate accepts) {
  std::vector<bool> is_ancestor(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.heads.size(); ++i) {
    if (accepts(graph.head_roles.empty() ? "output" : graph.head_roles[i])) {
      is_ancestor[graph.heads[i].node] = true;
    }
  }
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!is_ancestor[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) is_ancestor[input.node] = true;
  }
  return is_ancestor;
}

class Grouper {
 public:
  Grouper(const Graph& graph, const StrategyTable& table)
      : graph_(graph), table_(table), consumers_(graph.nodes.size()) {
    for (int node = 0; node < graph.num_nodes(); ++node) {
      for (NodeEntry input : graph.nodes[node].inputs) {
        consumers_[input.node].push_back(node);
      }
    }
    for (int node = 0; node < graph.num_nodes(); ++node) {
      if (graph.nodes[node].is_variable())
        variables_.emplace(graph.nodes[node].name, node);
    }
  }

  Groups Run() {
    groups_.forward =
        Ancestors(graph_, [](const std::string& role) { return role == "output"; });
    groups_.op_group.assign(graph_.nodes.size(), -1);
    groups_.node_tensor.assign(graph_.nodes.size(), -1);
    groups_.tensor_group.assign(static_cast<size_t>(graph_.num_entries()), -1);
    ClaimUpdates();
    ClaimByControlDependency();
    ClaimByStructure();
    GroupVariables();
    GroupGradients(/*exact=*/true);
    GroupGradients(/*exact=*/false);
    return std::move(groups_);
  }

 private:
  bool IsBackward(int node) const {
    const Node& n = graph_.nodes[node];
    return !groups_.forward[node] && !n.is_variable() && !IsRepeat(n);
  }
  bool IsClaimed(int node) const {
    return groups_.op_group[node] >= 0 || groups_.node_tensor[node] >= 0;
  }
  int VariableEntry(const std::string& name) const {
    const auto it = variables_.find(name);
    return it == variables_.end() ? -1 : graph_.first_entry[it->second];
  }

  // Whether a node adds up gradients of one tensor: an element-wise operator of several
  // inputs, all of them results of backward operators.
  bool IsGradientSum(int node) const {
    const Node& n = graph_.nodes[node];
    return IsBackward(node) && n.control_deps.empty() && n.inputs.size() > 1 &&
           IsElementwise(graph_, table_, node) &&
           std::all_of(n.inputs.begin(), n.inputs.end(),
                       [this](NodeEntry input) { return IsBackward(input.node); });
  }

  // Gives nodes that only new weights need to the weight.
  void ClaimUpdates() {
    const std::vector<bool> before = Ancestors(graph_, [](const std::string& role) {
      return RoleTarget(role, "update:").empty();
    });
    for (size_t i = 0; i < graph_.head_roles.size(); ++i) {
      const int weight = VariableEntry(RoleTarget(graph_.head_roles[i], "update:"));
      if (weight < 0) continue;
      std::vector<int> stack = {graph_.heads[i].node};
      while (!stack.empty()) {
        const int node = stack.back();
        stack.pop_back();
        if (before[node] || graph_.nodes[node].is_variable() || IsClaimed(node)) continue;
        groups_.node_tensor[node] = weight;
        for (NodeEntry input : graph_.nodes[node].inputs) stack.push_back(input.node);
      }
    }
  }

  void ClaimByControlDependency() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      if (n.is_variable() || IsClaimed(node)) continue;
      if (groups_.forward[node]) {
        groups_.op_group[node] = node;
      } else if (!n.control_deps.empty()) {
        groups_.op_group[node] = groups_.op_group[n.control_deps[0]];
      }
    }
  }

  // Claims backward operators that name no forward operator: first those that continue a
  // group, then, from the end, those that only feed one (such as a tensor of zeros).
  void ClaimByStructure() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!IsBackward(node) || IsClaimed(node) || IsGradientSum(node)) continue;
      for (NodeEntry input : graph_.nodes[node].inputs) {
        if (IsClaimed(node) || !IsBackward(input.node)) continue;
        groups_.op_group[node] = groups_.op_group[input.node];
      }
    }
    for (int node = graph_.num_nodes() - 1; node >= 0; --node) {
      if (!IsBackward(node) || IsClaimed(node) || IsGradientSum(node)) continue;
      for (int consumer : consumers_[node]) {
        if (!IsClaimed(node)) groups_.op_group[node] = groups_.op_group[consumer];
      }
    }
  }

  void GroupVariables() {
    for (int entry = 0, node = 0; node < graph_.num_nodes(); ++node) {
      for (int i = 0; i < graph_.nodes[node].num_outputs; ++i, ++entry) {
        if (groups_.forward[node]) groups_.tensor_group[entry] = entry;
        if (groups_.node_tensor[node] >= 0) {
          groups_.tensor_group[entry] = groups_.node_tensor[node];
        }
        if (IsRepeat(graph_.nodes[node])) {
          const NodeEntry repeated{graph_.nodes[node].control_deps[0], i};
          groups_.tensor_group[entry] = graph_.entry_id(repeated);
        }
      }
      if (groups_.forward[node] || !graph_.nodes[node].is_variable()) continue;
      const std::string role = VariableRole(graph_.nodes[node]);
      groups_.tensor_group[entry - 1] = VariableEntry(RoleTarget(role, "state:"));
      const std::string output = RoleTarget(role, "head_grad:");
      for (size_t i = 0; !output.empty() && i < graph_.heads.size(); ++i) {
        if (output == std::to_string(i)) {
          groups_.tensor_group[entry - 1] = graph_.entry_id(graph_.heads[i]);
        }
      }
    }
    for (size_t i = 0; i < graph_.head_roles.size(); ++i) {
      for (const char* prefix : {"gradient:", "aux:"}) {
        const int entry = VariableEntry(RoleTarget(graph_.head_roles[i], prefix));
        if (entry >= 0) groups_.tensor_group[graph_.entry_id(graph_.heads[i])] = entry;
      }
    }
  }

  // Finds the forward tensor of each gradient. A gradient that operator f's group passes
  // to operator p's group belongs to the output of p that f reads (exact), or else to p's
  // only output of its shape. Visits sums before their terms.
  void GroupGradients(bool exact) {
    for (int node = graph_.num_nodes() - 1; node >= 0; --node) {
      if (!IsBackward(node)) continue;
      const bool sum = IsGradientSum(node) && !IsClaimed(node);
      if (sum) {
        groups_.node_tensor[node] = groups_.tensor_group[graph_.first_entry[node]];
      }
      for (NodeEntry input : graph_.nodes[node].inputs) {
        int& group = groups_.tensor_group[graph_.entry_id(input)];
        if (group >= 0 || !IsBackward(input.node)) continue;
        group = sum ? groups_.node_tensor[node] : GradientOf(input, node, exact);
      }
    }
  }

  int GradientOf(NodeEntry gradient, int consumer, bool exact) const {
    const int p = groups_.op_group[consumer];
    if (p < 0 || p == groups_.op_group[gradient.node]) return -1;
    int only = -1;
    int matches = 0;
    for (int i = 0; i < graph_.nodes[p].num_outputs; ++i) {
      const NodeEntry output{p, i};
      if (graph_.shape(output) != graph_.shape(gradient)) continue;
      only = graph_.entry_id(output);
      ++matches;
      if (Reads(groups_.op_group[gradient.node], only)) return only;
    }
    return !exact && matches == 1 ? only : -1;
  }

  bool Reads(int node, int entry) const {
    if (node < 0) return false;
    const std::vector<NodeEntry>& inputs = graph_.nodes[node].inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](NodeEntry input) { return graph_.entry_id(input) == entry; });
  }

  const Graph& graph_;
  const StrategyTable& table_;
  std::vector<std::vector<int>> consumers_;
  std::map<std::string, int> variables_;
  Groups groups_;
};

}  // namespace

Groups GroupForwardBackward(const Graph& graph, const StrategyTable& table) {
  return Grouper(graph, table).Run();
}

int FindVariable(const Graph& graph, const std::string& name) {
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable() && graph.nodes[node].name == name) return node;
  }
  return -1;
}

}  // namespace tofu
