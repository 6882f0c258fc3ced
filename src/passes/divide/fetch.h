// Finds the pieces that a worker fetches to assemble a region of a tensor that is
// spread over workers (paper section 6, "fusing operators for remote data fetch").
//
// A FetchSpec describes the assembly without operators: boxes of sources, boxes of
// the destination, and how overlapping terms are reduced.
// emit_plain.h turns one into slices, concatenations and additions,
// emit_multifetch.h into one operator.
//
// Input:      the region, and the box that every source worker holds.
// Output:     pieces that cover the region exactly once per term.
// Invariants: the pieces of a term are in row-major order of their destination,
//             and as few as the grid of sources allows.
// Errors:     FetchGap if some element has no source.
// Complexity: O(r * (p + s) * log s) for p pieces and s sources of rank r that lie on a
//             grid, each in few slabs.
#ifndef TOFU_PASSES_DIVIDE_FETCH_H_
#define TOFU_PASSES_DIVIDE_FETCH_H_

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "graph/box.h"
#include "graph/strategy_table.h"

namespace tofu {

// An array that holds the elements `box` (in the tensor's coordinates) of a
// tensor, on `worker`.
struct FetchSource {
  int worker = 0;
  Box box;
};

// Stands for a worker in pieces that lie outside the tensor, which no worker holds.
constexpr int kFill = -1;

// Elements copied from one source to one box of the destination. Both boxes have
// the same extents.
struct FetchPiece {
  int source = kFill;  // worker, or kFill for the spec's fill value
  Box from;            // within the source array; unused for kFill
  Box to;              // within the assembled region
  int term = 0;        // terms overlap and are reduced, in this order
};

// Describes how `worker` assembles the elements `region`, in the tensor's coordinates.
// The region may reach outside the tensor.
struct FetchSpec {
  int worker = 0;
  Box region;
  std::vector<FetchPiece> pieces;
  int num_terms = 1;
  Reducer reduce = Reducer::kSum;  // how terms combine when num_terms > 1
  std::string fill = "0";
};

// Thrown for elements of a tensor that no source holds.
class FetchGap : public std::exception {
 public:
  explicit FetchGap(Box box) : box_(std::move(box)) {}
  const char* what() const noexcept override { return "no source holds a region"; }
  const Box& box() const { return box_; }

 private:
  Box box_;
};

// Assembles `region` for `worker` from `sources`, in order of preference.
// Elements outside `tensor` are filled.
FetchSpec PlanFetch(int worker, const Box& region, const Box& tensor,
                    const std::vector<FetchSource>& sources);

// The same, with one list of sources per term; every term covers what of the region lies
// in the tensor.
FetchSpec PlanReduction(int worker, const Box& region, const Box& tensor,
                        const std::vector<std::vector<FetchSource>>& terms,
                        Reducer reduce);

// The number of elements that the spec takes from other workers.
int64_t FetchedElements(const FetchSpec& spec);

// The box in coordinates that begin at `origin`.
Box Relative(const Box& box, const Shape& origin);

// Writes a box as in "[0:4, 2:8)", for messages and dumps.
std::string BoxText(const Box& box);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_FETCH_H_
