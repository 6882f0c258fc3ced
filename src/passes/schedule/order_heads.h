// Puts the heads of the backward half into the order of their nodes if that saves an
// eighth of the memory.
//
// An executor visits heads one after the other, and no backward operator can depend on
// the fetches before it (control_deps.h). If the first head is the gradient of the first
// layer, which needs the whole backward pass, all fetches that reduce other gradients run
// after it, and each worker keeps its terms of these sums until then. With the heads in
// order, a sum is reduced when its terms are ready, while other operators compute. But
// gradients that need no reduction are then made earlier, too, which may keep more
// tensors alive. And executors reuse memory, so an operator may wait until others have
// fetched the tensor that was there: data parallelism of WResNet-152-10 would take 60%
// longer for 1% less memory. So the pass compares the bytes alive at the peak, in
// bound_graph.h's order.
//
// Input:      the phases, with their control dependencies.
// Output:     the same phases; heads of the backward graph may have other numbers.
// Invariants: results stay the same.
// Errors:     none.
// Position:   after control_deps.h, which fixes the order of a worker's nodes; before
//             join_phases.h.
// Complexity: that of bound_graph.h, and O(H log H) for H heads.
#ifndef TOFU_PASSES_SCHEDULE_ORDER_HEADS_H_
#define TOFU_PASSES_SCHEDULE_ORDER_HEADS_H_

#include "passes/schedule/phases.h"

namespace tofu {

// `phases` must have a backward half. `joint`: one executor runs both halves, so tensors
// that are saved between them are free after their last reader.
void OrderHeads(bool joint, Phases* phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_ORDER_HEADS_H_
