// Finds operators that run once in a step, even if others run again: operators that draw
// random numbers, have no description, or have an attribute that says so.
#ifndef TOFU_GRAPH_LIVES_DRAWS_H_
#define TOFU_GRAPH_LIVES_DRAWS_H_

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

constexpr char kOnceAttr[] = "__tofu_once__";

// `row`: the operator's row; null if it has no description.
inline bool RunsOnce(const Node& node, const StrategyRow* row) {
  return row == nullptr || row->random || node.attrs.count(kOnceAttr) > 0;
}

}  // namespace tofu

#endif  // TOFU_GRAPH_LIVES_DRAWS_H_
