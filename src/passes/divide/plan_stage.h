// Plans one stage of a fetch for one worker: from boxes that all workers hold of a tensor
// to boxes that they need.
//
// Input:      the boxes held and needed, as functions of the digits. Held boxes that
//             differ at no step of `reduces` are disjoint or equal; those that differ
//             there are terms.
// Output:     the pieces that this worker assembles, and those that others take from it.
//             A worker reads from the holder that has its own digits at all other steps,
//             and at those of `alike`.
// Errors:     FetchGap if some element has no holder.
// Complexity: overlapping_workers.h's; without pieces, O(d) for tensors of which a
//             dimension has at most d different intervals.
#ifndef TOFU_PASSES_DIVIDE_PLAN_STAGE_H_
#define TOFU_PASSES_DIVIDE_PLAN_STAGE_H_

#include <vector>

#include "graph/box.h"
#include "passes/divide/fetch.h"
#include "passes/divide/worker_program.h"
#include "passes/search/cost/cost.h"

namespace tofu {

struct Stage {
  GroupBoxes holders;
  StepSet reduces = 0;  // steps at which holders have different terms
  Reducer reducer = Reducer::kSum;
  GroupBoxes needs;  // clipped to the tensor
  Box tensor;
  StepSet alike = 0;  // steps at which a worker reads from its own digit only
};

// `region`: the worker's, which may reach outside the tensor.
FetchSpec PlanStage(const Stage& stage, int worker, const Box& region);

// The holders of each term of the worker's region.
std::vector<std::vector<FetchSource>> HoldersOf(const Stage& stage, int worker,
                                                const Box& region);

// PlanStage's specification without pieces.
FetchSpec SpecOf(const Stage& stage, int worker, const Box& region);

std::vector<SentPiece> PlanSent(const Stage& stage, int worker);

// Whether a piece of the worker's region is its own, whether one is another's, and
// whether others take pieces from the worker.
bool ReadsOwn(const Stage& stage, int worker, const Box& region);
bool Receives(const Stage& stage, int worker, const Box& region);
bool Sends(const Stage& stage, int worker);

std::vector<SenderPattern> PatternOf(const Stage& stage);

}  // namespace tofu

#endif  // TOFU_PASSES_DIVIDE_PLAN_STAGE_H_
