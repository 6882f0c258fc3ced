// Lets retirements wait for later fetches of their own worker, instead of
// acknowledgements from the readers, wherever those fetches can only run after the
// readers.
//
// A worker that fetches a tile computes something from it, and the tile's owner soon
// fetches from that. The owner's fetch then proves that the tile has been read, and no
// acknowledgement has to cross workers. But the tile lives until that fetch. So the
// pass counts the bytes alive at every node, and keeps an acknowledgement where the
// owner's peak would grow without it.
//
// Retirements of one worker that wait for the same fetches become one node, and so do all
// retirements of tiles that live to the end of the phase, such as weights.
//
// Input:      the phases, without control dependencies; nodes except retirements are in
//             the order in which they should run.
// Output:     the same phases with other retirements, which remain the first heads.
// Invariants: results stay the same; a retirement runs after every reader of its tiles
//             (VerifyTiles checks it on the graph alone).
// Errors:     none.
// Position:   after phases, which adds the retirements; before relay_regions.h, which
//             serves the acknowledgements that remain.
// Complexity: O(k E + N log N) for k workers, N nodes and E edges.
#ifndef TOFU_PASSES_SCHEDULE_DROP_ACKNOWLEDGEMENTS_H_
#define TOFU_PASSES_SCHEDULE_DROP_ACKNOWLEDGEMENTS_H_

#include "passes/schedule/phases.h"

namespace tofu {

void DropAcknowledgements(Phases* phases);

}  // namespace tofu

#endif  // TOFU_PASSES_SCHEDULE_DROP_ACKNOWLEDGEMENTS_H_
