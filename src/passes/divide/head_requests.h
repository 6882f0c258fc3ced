// Selects the heads of a training graph to divide over workers, and the nodes that they
// need.
//
// Input:      a training graph and the roles of the heads to select.
// Output:     a request for each head. The tiles of a gradient, or of a variable's new
//             value, are those of the variable.
// Errors:     UserError(kGraph) for roles that no head has, and for two variables of one
//             name.
// Position:   within partition and divide.
// Complexity: linear in the graph.
#ifndef TOFU_PASSES_DIVIDE_HEAD_REQUESTS_H_
#define TOFU_PASSES_DIVIDE_HEAD_REQUESTS_H_

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tofu {

// A selected head, and the variable whose tiles it has, if any.
struct HeadRequest {
  std::string role;
  NodeEntry entry;
  int variable = -1;
};

// Default: all heads except updates.
std::vector<HeadRequest> RequestHeads(
    const Graph& graph, const std::optional<std::vector<std::string>>& roles);

struct Needed {
  std::vector<bool> nodes;
  std::vector<bool> entries;
};

// The nodes that the heads need, and the entries that are read.
Needed NeededBy(const Graph& graph, const std::vector<HeadRequest>& heads);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_HEAD_REQUESTS_H_
