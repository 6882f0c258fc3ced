// Names tensors: a node's name for its first output, "NODE[1]" for the next.
#ifndef TOFU_GRAPH_NAMES_H_
#define TOFU_GRAPH_NAMES_H_

#include <string>

#include "graph/graph.h"

namespace tofu {

std::string EntryName(const Graph& graph, int entry);

// The first entry of this name, or -1; "NODE[0]" is NODE.
int FindEntry(const Graph& graph, const std::string& name);

}  // namespace tofu

#endif  // TOFU_GRAPH_NAMES_H_
