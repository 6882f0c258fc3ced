#include "graph/lives/tensor_lives.h"

#include <string>

#include "graph/head_roles.h"
#include "graph/lives/memory_order.h"

namespace tofu {
namespace {

Keep KeepOfVariable(const std::string& role) {
  if (role == "parameter" || role == "aux") return Keep::kParameter;
  return RoleTarget(role, "state:").empty() ? Keep::kAlways : Keep::kState;
}

Keep KeepOfHead(const std::string& role) {
  if (!RoleTarget(role, "gradient:").empty()) return Keep::kGradient;
  return IsWrittenInPlace(role) ? Keep::kInPlace : Keep::kAlways;
}

std::vector<Keep> KeepOfEntries(const Graph& graph) {
  std::vector<Keep> keep(static_cast<size_t>(graph.num_entries()), Keep::kUntilRead);
  for (size_t i = 0; i < graph.heads.size(); ++i) {
    const std::string role = i < graph.head_roles.size() ? graph.head_roles[i] : "";
    keep[graph.entry_id(graph.heads[i])] = KeepOfHead(role);
  }
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    if (!n.is_variable()) continue;
    keep[graph.first_entry[node]] = KeepOfVariable(VariableRole(n));
  }
  return keep;
}

}  // namespace

TensorLives FindTensorLives(const Graph& graph) {
  TensorLives lives{MemoryOrder(graph), KeepOfEntries(graph), {}};
  std::vector<int> last(static_cast<size_t>(graph.num_entries()), -1);
  for (int node : lives.order) {
    for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
      last[graph.entry_id({node, i})] = node;
    }
    for (NodeEntry input : graph.nodes[node].inputs) last[graph.entry_id(input)] = node;
  }
  lives.dying.resize(graph.nodes.size());
  for (int entry = 0; entry < graph.num_entries(); ++entry) {
    if (lives.keep[entry] == Keep::kUntilRead) lives.dying[last[entry]].push_back(entry);
  }
  return lives;
}

}  // namespace tofu
