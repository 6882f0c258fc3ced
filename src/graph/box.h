// Boxes of index space, and the division of tensors and operators into boxes by a plan.
// All geometry of the project is here and in division.h; search, partition and fetch only
// use it.
#ifndef TOFU_GRAPH_BOX_H_
#define TOFU_GRAPH_BOX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/division.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// Whether every part gets an element if a step of `parts` parts cuts this extent.
bool CanCut(int64_t extent, int parts);

// Whether the largest of `parts` pieces holds at most a quarter more than their mean.
bool CutsEvenly(int64_t extent, int64_t parts);

// A half-open box: begin[d] <= index < end[d]. Empty if some extent is <= 0.
struct Box {
  Shape begin;
  Shape end;

  int rank() const { return static_cast<int>(begin.size()); }
  int64_t Volume() const;
  Shape Extents() const;
  bool operator==(const Box& other) const {
    return begin == other.begin && end == other.end;
  }
};

Box WholeBox(const Shape& shape);
Box Intersect(const Box& a, const Box& b);
// Whether two boxes have an element in common.
bool Overlap(const Box& a, const Box& b);
bool Contains(const Box& outer, const Box& inner);

// Cuts that are no dimension: the step leaves the tensor whole, or each of its workers
// holds a term of full size, and the tensor is their sum.
constexpr int kReplicated = -1;
constexpr int kTerms = -3;

// Whether a cut is a dimension, or a variable.
constexpr bool IsCut(int cut) { return cut >= 0; }

// The digits of `worker` in the mixed radix `parts`, step 1 first and most
// significant.
std::vector<int> WorkerDigits(int worker, const std::vector<int>& parts);

// The tile of a tensor of `shape` after the first `cuts.size()` steps, for a worker
// with these digits: one of nested, contiguous pieces. cuts[i] is a dimension,
// kReplicated or kTerms.
Box TileBox(const Shape& shape, const std::vector<int>& cuts, const Division& parts,
            const std::vector<int>& digits);

// The extent of variable `var` of `row` at `node`.
int64_t VarExtent(const StrategyRow& row, int var, const Graph& graph, int node);

// The ranges of all variables of `row` at `node` after the first cuts.size()
// steps, for a worker with these digits. cuts[i] is a variable or kReplicated.
std::vector<Range> VarRanges(const StrategyRow& row, const Graph& graph, int node,
                             const std::vector<int>& cuts, const Division& parts,
                             const std::vector<int>& digits);

// The region of a tensor of `shape` that `dims` touches, given the variables' ranges. It
// is not clipped to the tensor. Dimensions that `dims` does not list are whole.
Box AccessBox(const std::vector<DimAccess>& dims, const Shape& shape,
              const std::vector<Range>& ranges);

}  // namespace tofu

#endif  // TOFU_GRAPH_BOX_H_
