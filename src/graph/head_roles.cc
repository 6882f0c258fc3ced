#include "graph/head_roles.h"

#include <set>

#include "base/error.h"

namespace tofu {

std::string RoleKind(const std::string& role) { return role.substr(0, role.find(':')); }

std::string RoleVariable(const std::string& role) {
  const size_t colon = role.find(':');
  return colon == std::string::npos ? "" : role.substr(colon + 1);
}

std::string RoleTarget(const std::string& role, const std::string& prefix) {
  return role.compare(0, prefix.size(), prefix) == 0 ? role.substr(prefix.size()) : "";
}

std::string VariableRole(const Node& node) {
  const auto it = node.attrs.find("__tofu_role__");
  return it == node.attrs.end() ? "" : it->second;
}

bool IsWrittenInPlace(const std::string& role) {
  return !RoleTarget(role, "update:").empty() || !RoleTarget(role, "aux:").empty();
}

std::string HeadRole(const Graph& graph, size_t head) {
  return graph.head_roles.empty() ? kOutputRole : graph.head_roles[head];
}

std::vector<size_t> SelectHeads(const Graph& graph,
                                const std::optional<std::vector<std::string>>& roles) {
  std::vector<size_t> selected;
  std::set<std::string> unmatched;
  if (roles) unmatched.insert(roles->begin(), roles->end());
  const std::set<std::string> asked = unmatched;
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    const std::string role = HeadRole(graph, h);
    const std::string kind = RoleKind(role);
    const bool take =
        roles ? asked.count(role) + asked.count(kind) > 0 : kind != kUpdateKind;
    if (!take) continue;
    unmatched.erase(role);
    unmatched.erase(kind);
    selected.push_back(h);
  }
  TOFU_CHECK_USER(unmatched.empty(), Blame::kGraph)
      << "partition: no head of the graph has the role \"" << *unmatched.begin()
      << "\"; expected roles among the graph attribute tofu_heads, or their kinds";
  return selected;
}

}  // namespace tofu
