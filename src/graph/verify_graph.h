// Checks that a graph is one: run after every pass that changes a graph, in debug
// and test builds.
//
// Input:      any graph.
// Rules:      entries are numbered as the nodes' outputs say, each with a shape of
//             extents that are not negative and a known dtype; inputs, control
//             dependencies and heads name nodes and outputs that exist; nodes stand after
//             what they read and depend on, so that there is no cycle; no two variables
//             have the same name; roles are as many as heads, or none.
// Errors:     InternalError with the node and the rule it breaks.
// Complexity: O(N + E) for N nodes and E edges.
#ifndef TOFU_GRAPH_VERIFY_GRAPH_H_
#define TOFU_GRAPH_VERIFY_GRAPH_H_

#include <string>

#include "graph/graph.h"

namespace tofu {

// Whether passes verify what they make.
#ifdef TOFU_VERIFY
constexpr bool kVerifyGraphs = true;
#else
constexpr bool kVerifyGraphs = false;
#endif

// `after` names the pass, for the message.
void VerifyGraph(const Graph& graph, const std::string& after);

}  // namespace tofu

#endif  // TOFU_GRAPH_VERIFY_GRAPH_H_
