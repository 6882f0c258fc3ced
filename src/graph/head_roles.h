// Roles of a training graph's heads and variables (docs/formats.md, "Training graph").
//
// Errors: UserError(kGraph) for roles that no head has.
#ifndef TOFU_GRAPH_HEAD_ROLES_H_
#define TOFU_GRAPH_HEAD_ROLES_H_

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tofu {

constexpr char kOutputRole[] = "output";
constexpr char kUpdateKind[] = "update";
constexpr char kGradientKind[] = "gradient";

// The part of a role before the colon: "gradient" of "gradient:fc_weight".
std::string RoleKind(const std::string& role);
std::string RoleVariable(const std::string& role);

// The variable that a head or variable role such as "gradient:fc_weight"
// names after `prefix` ("gradient:"); empty for other roles.
std::string RoleTarget(const std::string& role, const std::string& prefix);

// Whether a head of this role is written to its variable's memory.
bool IsWrittenInPlace(const std::string& role);

// The attribute "__tofu_role__" of a variable, or "".
std::string VariableRole(const Node& node);

std::string HeadRole(const Graph& graph, size_t head);

// The numbers of the heads with one of `roles`, in full or by kind, in the graph's order;
// without roles, all except the updates.
std::vector<size_t> SelectHeads(const Graph& graph,
                                const std::optional<std::vector<std::string>>& roles);

}  // namespace tofu

#endif  // TOFU_GRAPH_HEAD_ROLES_H_
