// Decides which gradients workers fetch together. Gradients are read when the step has
// ended, so nothing waits for them before.
//
// All workers have the same fetches, so the first worker's program decides for all.
//
// Input:      the first worker's program.
// Output:     for each head, the number of its bundle, or -1. Small gradients are
//             together, and so are gradients whose terms the same workers have of the
//             same operator.
// Errors:     none.
// Position:   within partition; bundle_fetches.h joins the fetches.
// Complexity: O(h log h) for h heads.
#ifndef TOFU_PASSES_PARTITION_GRADIENT_BUNDLES_H_
#define TOFU_PASSES_PARTITION_GRADIENT_BUNDLES_H_

#include <vector>

#include "passes/divide/worker_program.h"

namespace tofu {

std::vector<int> GradientBundles(const WorkerProgram& first);

}  // namespace tofu

#endif  // TOFU_PASSES_PARTITION_GRADIENT_BUNDLES_H_
