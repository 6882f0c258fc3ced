// Repeats: operators that run operators of the forward pass again in the backward pass
// (recompute.h). An attribute names the node that they repeat, which in a training graph
// is their control_deps[0].
#ifndef TOFU_GRAPH_LIVES_REPEATS_H_
#define TOFU_GRAPH_LIVES_REPEATS_H_

#include "graph/graph.h"

namespace tofu {

constexpr char kRepeatsAttr[] = "__tofu_repeats__";

// Whether a node is a repeat. Repeats run late: no order moves them ahead of others.
inline bool IsRepeat(const Node& node) { return node.attrs.count(kRepeatsAttr) > 0; }

}  // namespace tofu

#endif  // TOFU_GRAPH_LIVES_REPEATS_H_
