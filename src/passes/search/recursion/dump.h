// Writes the result of each pass as text for people (TOFU_LOG=dump:DIR).
#ifndef TOFU_PASSES_SEARCH_RECURSION_DUMP_H_
#define TOFU_PASSES_SEARCH_RECURSION_DUMP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/coarsen/group.h"
#include "passes/search/recursion/step_search.h"

namespace tofu {

std::string DumpGroups(const Graph& graph, const Groups& groups);
std::string DumpClasses(const Graph& graph, const CoarseGraph& coarse);
std::string DumpSearch(const CoarseGraph& coarse, const SearchResult& found,
                       const std::vector<int>& parts, int64_t cost_before,
                       const std::string& unit = "bytes");
std::string DumpImprovement(int64_t recursion, int64_t improved, int64_t lower_bound,
                            const std::string& unit = "bytes");
std::string DumpPlan(const Graph& graph, const StrategyTable& table, const Plan& plan);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_DUMP_H_
