// Searches the layouts of Mesh-TensorFlow: each step of a plan is a dimension of a mesh
// of workers, and each logical dimension (logical_dimensions.h) is cut at some of the
// steps. All tensors that have it are cut along it there, and all operators that iterate
// over it are split along it. Tensors and operators without a dimension that a step cuts
// stay whole at that step, or wait as terms (waiting_terms.h).
//
// Rule:       no tensor and no operator has two dimensions of one step, or a dimension
//             that does not divide. A step cuts as many as it can: one more would break
//             the rule.
// Search:     all layouts, if there are few; else a local search. It starts from the best
//             of the layouts that cut one dimension at every step that cuts it evenly. A
//             move makes a step cut another dimension, gives up the dimensions that
//             conflict with it, and adds all that still fit, if that costs less.
// Input:      a graph, its table and classes; the parts; the objective; given decisions.
// Output:     `given` with a decision for every class and step; earlier decisions stay.
// Errors:     none.
// Position:   modes.h, for the mode "mesh-tensorflow".
// Complexity: C look-ups for each layout, C classes of operators, and one cost for each
//             class and new cuts of its tensors.
#ifndef TOFU_PASSES_SEARCH_MESH_LAYOUT_H_
#define TOFU_PASSES_SEARCH_MESH_LAYOUT_H_

#include <cstddef>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost_model.h"
#include "passes/search/recursion/step_search.h"
#include "passes/search/tilings/logical_dimensions.h"

namespace tofu {

// The most layouts that are all tried.
constexpr size_t kMaxLayouts = 4096;

struct MeshOptions {
  std::vector<int> parts;
  Objective objective;
  bool equal_tiles = false;  // as in alternatives.h
};

// Returns whether all layouts were tried.
bool SearchMeshLayout(const Graph& graph, const StrategyTable& table,
                      const CoarseGraph& coarse, const MeshOptions& options,
                      ClassCuts* given);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MESH_LAYOUT_H_
