// Makes constants where they are read, instead of fetching them.
//
// A part of an operator is a constant if it depends on nothing but its extents: the
// operator has no inputs, draws no random numbers, and of its attributes only the shape
// changes when it is split.
//
// Input:      the serial graph and its strategy table.
// Output:     nodes that make a region on a worker.
// Invariants: the region equals that of the serial operator's output.
// Errors:     none.
// Complexity: O(rank) per region.
#ifndef TOFU_PASSES_PARTITION_CONSTANTS_H_
#define TOFU_PASSES_PARTITION_CONSTANTS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/partition/graph_builder.h"

namespace tofu {

// Whether parts of the output are constants along these dimensions, in whatever pieces.
bool IsConstantAlong(const Graph& graph, const StrategyTable& table, NodeEntry output,
                     const std::vector<int>& dims);

class ConstantMaker {
 public:
  ConstantMaker(const Graph& graph, const StrategyTable& table, GraphBuilder* builder)
      : graph_(graph), table_(table), builder_(*builder) {}

  // Whether the region of the output is a constant part.
  bool CanMake(NodeEntry output, const Box& region) const;

  // Makes the region on the worker. Readers share small regions.
  NodeEntry Make(NodeEntry output, const Box& region, int worker,
                 const std::string& name);

  // Makes zeros on the worker, for readers that do not write to them. Readers share small
  // arrays.
  NodeEntry Zeros(const Shape& shape, int dtype, int worker, const std::string& name);

 private:
  const Graph& graph_;
  const StrategyTable& table_;
  GraphBuilder& builder_;
  // By node, worker and extents.
  std::map<std::pair<int, std::pair<int, Shape>>, NodeEntry> shared_;
  // By type, worker and extents.
  std::map<std::pair<int, std::pair<int, Shape>>, NodeEntry> zeros_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_CONSTANTS_H_
