// A graph at another size, from the same graph at two sizes.
#ifndef TOFU_GRAPH_BETWEEN_H_
#define TOFU_GRAPH_BETWEEN_H_

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace tofu {

// A graph made for `size`: a batch size, say.
struct SizedGraph {
  const Graph& graph;
  int64_t size;
};

// The graph at `size`, if every extent and every whole number in an attribute lies on the
// line through its values in `a` and `b`. Nothing if another part of the two graphs
// differs, a value on a line is no whole number, or a tensor would have no element or too
// many. The sizes of `a` and `b` differ.
//
// Only a third graph shows that a line through two is right.
std::optional<Graph> GraphAt(const SizedGraph& a, const SizedGraph& b, int64_t size);

}  // namespace tofu

#endif  // TOFU_GRAPH_BETWEEN_H_
