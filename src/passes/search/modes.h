// The search modes: the paper's recursion, ours, and the rivals that section 7.3
// of the paper compares with. Each is the same search with the same costs under
// its own restrictions (docs/search.md defines them).
//
// Input:      the mode's name; a graph, its table and classes; options with
//             parts and objective, and with the user's pins in `given`.
// Output:     `options` with the mode's method, restrictions and given decisions;
//             pins stay.
// Errors:     none for a name in SearchModes().
// Position:   after coalesce and pins, before recursive_search.h.
// Complexity: O(N + E), N nodes, E edges; that of mesh_layout.h for its mode.
#ifndef TOFU_PASSES_SEARCH_MODES_H_
#define TOFU_PASSES_SEARCH_MODES_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/recursive_search.h"

namespace tofu {

// "tofu" first.
const std::vector<std::string>& SearchModes();
bool IsSearchMode(const std::string& name);
// Whether the mode improves what the recursion decides, all steps together.
bool ImprovesSteps(const std::string& name);
// Whether the mode decides merged timesteps and element-wise operators again, where that
// pays: the improving modes, and "flat", which no plan of theirs may beat where all
// tensors are cut.
bool ReleasesMerges(const std::string& name);

// What the mode cuts like a parameter. `may_be_whole`: whether tensors may stay whole;
// only then does it gain anything to cut gradients and optimizer states apart.
UpdateTies UpdateTiesOf(const std::string& name, bool may_be_whole);

// [tensor class]: parameters, their gradients and states, and tensors that no
// element-wise operator touches. If an element-wise operator had a whole tensor, every
// worker would compute the same (SoyBean also forbids it); only updates of parameters may
// do so.
std::vector<bool> ReplicableTensors(const Graph& graph, const CoarseGraph& coarse);

void SetMode(const std::string& mode, const Graph& graph, const StrategyTable& table,
             const CoarseGraph& coarse, RecursiveOptions* options);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MODES_H_
