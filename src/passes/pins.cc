#include "passes/pins.h"

#include "graph/box.h"
#include "graph/error.h"
#include "passes/group.h"

namespace tofu {
namespace {

void CheckPin(const std::string& name, Shape shape, const Cuts& cuts,
              const std::vector<int>& parts) {
  TOFU_CHECK_USER(cuts.size() == parts.size(), Blame::kPlan)
      << "pin of \"" << name << "\": found " << cuts.size() << " cuts, expected "
      << parts.size() << ", one a step; give a dimension (or -1) for every step";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (cuts[i] == kReplicated) continue;
    const bool exists = cuts[i] >= 0 && cuts[i] < static_cast<int>(shape.size());
    TOFU_CHECK_USER(exists, Blame::kPlan)
        << "pin of \"" << name << "\", step " << i + 1 << ": found dimension " << cuts[i]
        << ", expected -1 (replicated) or one of its " << shape.size() << " dimensions";
    int64_t& extent = shape[cuts[i]];
    TOFU_CHECK_USER(extent % parts[i] == 0, Blame::kPlan)
        << "pin of \"" << name << "\", step " << i + 1 << ": found extent " << extent
        << " along dimension " << cuts[i] << ", expected one that divides by " << parts[i]
        << "; pin another dimension or -1";
    extent /= parts[i];
  }
}

}  // namespace

std::vector<Cuts> ResolvePins(const Graph& graph, const CoarseGraph& coarse,
                              const std::map<std::string, std::vector<int>>& pins,
                              const std::vector<int>& parts) {
  std::vector<Cuts> given(coarse.tensors.size(), Cuts(parts.size(), kFree));
  std::map<int, std::string> pinned;  // class -> the name that pinned it
  for (const auto& [name, cuts] : pins) {
    const int node = FindVariable(graph, name);
    TOFU_CHECK_USER(node >= 0, Blame::kPlan)
        << "pin of \"" << name << "\": found no variable of that name among "
        << graph.num_nodes() << " nodes, expected a parameter, input or state; tofu "
        << "plan lists the tensors";
    CheckPin(name, graph.shape({node, 0}), cuts, parts);
    const int tensor = coarse.tensor_class[graph.first_entry[node]];
    const auto [it, is_new] = pinned.emplace(tensor, name);
    TOFU_CHECK_USER(is_new || given[tensor] == cuts, Blame::kPlan)
        << "pins of \"" << it->second << "\" and \"" << name << "\": found different "
        << "cuts, expected equal ones, because the graph ties these tensors together; "
        << "drop one of the two pins";
    given[tensor] = cuts;
  }
  return given;
}

}  // namespace tofu
