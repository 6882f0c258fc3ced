// Reads the nodes of fetches in a partitioned graph (node_names.h).
#ifndef TOFU_FETCH_FETCH_NODES_H_
#define TOFU_FETCH_FETCH_NODES_H_

#include "fetch/fetch_bundle.h"
#include "fetch/node_names.h"
#include "graph/graph.h"

namespace tofu {

// Whether a node reads other workers' arrays itself.
bool IsDirect(const Node& node);

// The regions that a fetch assembles.
FetchBundle BundleOf(const Node& fetch);

}  // namespace tofu

#endif  // TOFU_FETCH_FETCH_NODES_H_
