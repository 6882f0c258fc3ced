#include "passes/divide/head_requests.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "graph/head_roles.h"

namespace tofu {
namespace {

std::map<std::string, int> VariablesByName(const Graph& graph) {
  std::map<std::string, int> variables;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (!graph.nodes[node].is_variable()) continue;
    const std::string& name = graph.nodes[node].name;
    TOFU_CHECK_USER(variables.emplace(name, node).second, Blame::kGraph)
        << "variable " << name << ": found two of this name, expected different names";
  }
  return variables;
}

// Whether a role is a gradient that an update reads unchanged, cut like the parameter
// or the optimizer state.
bool IsOfUpdate(const Graph& graph, const std::string& role) {
  if (RoleKind(role) != kGradientKind) return false;
  const std::string update = std::string(kUpdateKind) + ":" + RoleVariable(role);
  const std::vector<std::string>& roles = graph.head_roles;
  return std::find(roles.begin(), roles.end(), update) != roles.end();
}

}  // namespace

std::vector<HeadRequest> RequestHeads(
    const Graph& graph, const std::optional<std::vector<std::string>>& roles) {
  const std::map<std::string, int> variables = VariablesByName(graph);
  std::vector<HeadRequest> requests;
  for (size_t h : SelectHeads(graph, roles)) {
    HeadRequest request{HeadRole(graph, h), graph.heads[h]};
    const auto found = variables.find(RoleVariable(request.role));
    if (found != variables.end() && !IsOfUpdate(graph, request.role) &&
        graph.shape({found->second, 0}) == graph.shape(request.entry)) {
      request.variable = found->second;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

Needed NeededBy(const Graph& graph, const std::vector<HeadRequest>& heads) {
  Needed needed{std::vector<bool>(graph.nodes.size(), false),
                std::vector<bool>(graph.num_entries(), false)};
  const auto mark = [&](NodeEntry entry) {
    needed.nodes[entry.node] = true;
    needed.entries[graph.entry_id(entry)] = true;
  };
  for (const HeadRequest& head : heads) mark(head.entry);
  for (int node = graph.num_nodes() - 1; node >= 0; --node) {
    if (!needed.nodes[node]) continue;
    for (NodeEntry input : graph.nodes[node].inputs) mark(input);
  }
  return needed;
}

}  // namespace tofu
