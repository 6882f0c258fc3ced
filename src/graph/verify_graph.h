// Checks that a graph is consistent. Runs after every pass that changes a graph, in
// debug and test builds.
//
// Input:      any graph.
// Rules:      entries match the nodes' numbers of outputs, and each has a known dtype
//             and a shape without negative extents; inputs, control dependencies and
//             heads name nodes and outputs that exist; nodes come after all nodes that
//             they read or depend on, so there is no cycle; no two variables have the
//             same name; there is one role per head, or none at all.
// Errors:     InternalError with the node and the rule it breaks.
// Complexity: O(N + E) for N nodes and E edges.
#ifndef TOFU_GRAPH_VERIFY_GRAPH_H_
#define TOFU_GRAPH_VERIFY_GRAPH_H_

#include <string>

#include "graph/graph.h"

namespace tofu {

// Whether passes verify the graphs that they make.
#ifdef TOFU_VERIFY
constexpr bool kVerifyGraphs = true;
#else
constexpr bool kVerifyGraphs = false;
#endif

// `after` names the pass, for the message.
void VerifyGraph(const Graph& graph, const std::string& after);

}  // namespace tofu

#endif  // TOFU_GRAPH_VERIFY_GRAPH_H_
