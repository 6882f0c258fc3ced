// Reads the nodes of fetches in a partitioned graph (node_names.h).
#ifndef TOFU_FETCH_FETCH_NODES_H_
#define TOFU_FETCH_FETCH_NODES_H_

#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"
#include "graph/graph.h"

namespace tofu {

// Whether a node reads other workers' arrays itself.
bool IsDirect(const Node& node);

// The last output of a fetch, which is ready when the fetch has read its tiles.
NodeEntry Acknowledgement(const Graph& graph, int fetch);

// Whether an entry is a region that a fetch assembles.
bool IsRegion(const Graph& graph, NodeEntry entry);

// The regions that a fetch assembles, and the places of their tiles.
FetchBundle BundleOf(const Node& fetch);

}  // namespace tofu

#endif  // TOFU_FETCH_FETCH_NODES_H_
