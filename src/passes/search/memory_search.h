// Searches the plan with the least cost whose tiles stay within a memory limit.
//
// Every step is decided again, given the others, within the limit, until nothing
// improves. Up to two steps are also decided together, which is exact.
//
// Input:      what is given of every step; a plan to start from, within the limit or not.
// Output:     the best plan within the limit, with a bound of all such plans; nothing if
//             none was found.
// Errors:     none.
// Position:   after the searches without a limit (recursive_search.h).
// Complexity: kMaxSweeps * steps searches of one step (solve.h, with a fixed number of
//             nodes): equal input, equal output unless the deadline ends it.
#ifndef TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_
#define TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_

#include <cstdint>
#include <optional>

#include "passes/search/memory_limit.h"
#include "passes/search/step_search.h"

namespace tofu {

struct MemorySearchResult {
  std::optional<SearchResult> found;
  int64_t lower_bound = 0;
};

// `options.memory` is the limit; `parts` are those of the searcher.
MemorySearchResult SearchWithinMemory(const ClassCuts& given, const ClassCuts& start,
                                      const std::vector<int>& parts,
                                      const SearchOptions& options,
                                      PartitionSearcher* searcher);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_MEMORY_SEARCH_H_
