// Operators that repeat operators of the forward pass in the backward pass
// (recompute.h): their attribute names the node that they repeat, which in a training
// graph is their control_deps[0].
#ifndef TOFU_GRAPH_REPEATS_H_
#define TOFU_GRAPH_REPEATS_H_

#include "graph/graph.h"

namespace tofu {

constexpr char kRepeatsAttr[] = "__tofu_repeats__";

// Such a node runs late: no order moves it ahead of others.
inline bool IsRepeat(const Node& node) { return node.attrs.count(kRepeatsAttr) > 0; }

}  // namespace tofu

#endif  // TOFU_GRAPH_REPEATS_H_
