// Plans the fetches that turn the parts of an operator's output into the output's tiles.
//
// If several workers own the same tile and its parts are reduced, each may reduce a piece
// of the tile and gather the other pieces (graph/reduction_tiles.h), if that fetches
// less.
//
// Over a plan's route (graph/plan.h) workers gather tiles from pieces; before that, the
// workers of a host may add up their terms, each for a piece of their common result.
//
// Input:      the regions that the workers' instances produce, and the tiles to own.
// Output:     one fetch per worker, or two one after the other.
// Invariants: all workers that own the same tile get the same bits if they reduce it in
//             pieces or over a route; the elements fetched are those of cost.h.
// Errors:     UserError(kTable) if the parts leave out some of a tile; UserError(kPlan)
//             for a route that does not fit the output.
// Complexity: O(d * k^2 * r) for k workers and rank r; d is r for shared reduced tiles,
//             else 1.
#ifndef TOFU_PASSES_PARTITION_PLAN_OUTPUT_H_
#define TOFU_PASSES_PARTITION_PLAN_OUTPUT_H_

#include <vector>

#include "graph/box.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "passes/partition/fetch.h"
#include "passes/partition/operator_parts.h"

namespace tofu {

struct OutputFetches {
  // [worker]: fetches its tile, or its piece of the tile, from the instances' outputs.
  std::vector<FetchSpec> first;
  // [worker]: gathers the pieces; empty if the first fetches make tiles.
  std::vector<FetchSpec> gather;
};

// `tiles` and `parts`: one per worker.
OutputFetches PlanOutput(const Graph& graph, const Plan& plan, NodeEntry output,
                         const std::vector<OperatorPart>& parts,
                         const OutputReduction& reduction, const std::vector<Box>& tiles);

// The moves of a route, from the instances' outputs to the tiles: [move][worker].
std::vector<std::vector<FetchSpec>> PlanOutputRoute(
    const Graph& graph, const Plan& plan, const OutputRoute& route,
    const std::vector<OperatorPart>& parts, const OutputReduction& reduction,
    const std::vector<Box>& tiles);

// The fetch by which `worker` assembles another region from the instances' outputs.
FetchSpec PlanOutputRegion(const Graph& graph, const Plan& plan, NodeEntry output,
                           const std::vector<OperatorPart>& parts,
                           const OutputReduction& reduction, int worker,
                           const Box& region);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_PLAN_OUTPUT_H_
