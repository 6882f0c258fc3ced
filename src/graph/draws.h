// Operators that run once in a step, whatever runs again: what draws random numbers, what
// nobody described, and what their attribute says, because only its result is kept.
#ifndef TOFU_GRAPH_DRAWS_H_
#define TOFU_GRAPH_DRAWS_H_

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

constexpr char kOnceAttr[] = "__tofu_once__";

// `row`: the operator's; null: it has none.
inline bool RunsOnce(const Node& node, const StrategyRow* row) {
  return row == nullptr || row->random || node.attrs.count(kOnceAttr) > 0;
}

}  // namespace tofu

#endif  // TOFU_GRAPH_DRAWS_H_
