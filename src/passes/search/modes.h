// The search modes: the paper's recursion, tofu's own, and the rivals of section 7.3 of
// the paper. All use the same search and costs, each under its own restrictions, which
// docs/search.md defines.
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
#include "passes/search/recursion/recursive_search.h"

namespace tofu {

// All modes' names, "tofu" first.
const std::vector<std::string>& SearchModes();
bool IsSearchMode(const std::string& name);
// Whether the mode improves the recursion's plan by deciding all steps together.
bool ImprovesSteps(const std::string& name);
// Whether the mode decides merged timesteps and element-wise operators again where that
// pays. The improving modes do; so does "flat", so that their plans never beat its own
// while all tensors are cut.
bool ReleasesMerges(const std::string& name);

// Which tensors the mode cuts like their parameter. `may_be_whole`: whether tensors may
// stay whole; only then can it pay to cut gradients and optimizer states apart.
UpdateTies UpdateTiesOf(const std::string& name, bool may_be_whole);

// Where sums may wait as terms (coarsen/waiting_sums.h). They take more memory than
// tiles, so without whole tensors only the modes that hold whole gradients have them.
SumsWait SumsWaitOf(const std::string& name, bool may_be_whole);

// [tensor class]: whether it may stay whole, as parameters, their gradients and states
// may, tensors that may wait, tensors without a batch, such as the means of a batch norm,
// and tensors that no merged element-wise operator touches. With a whole tensor, all
// workers would compute the same merged operator, which SoyBean also forbids; only
// updates of parameters may do so, and operators without a batch, as in data parallelism.
// An operator that is not merged is split whatever its tensors are.
std::vector<bool> ReplicableTensors(const Graph& graph, const StrategyTable& table,
                                    const CoarseGraph& coarse);

// Lets steps cut the batch unevenly although they could cut something else evenly, as
// data parallelism does: with 8 samples over 6 workers, 4 have one and 2 have two.
void AllowUnevenBatch(const Graph& graph, const StrategyTable& table,
                      const CoarseGraph& coarse, Restrictions* restrictions);

void SetMode(const std::string& mode, const Graph& graph, const StrategyTable& table,
             const CoarseGraph& coarse, RecursiveOptions* options);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MODES_H_
