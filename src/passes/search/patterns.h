// What a plan cuts, whatever the order of its last steps.
//
// Neighbouring steps of equal parts may trade places. A pattern says what the first
// `ordered` steps cut, and how often the others cut each dimension in how many parts, one
// after the other: tiles and regions are the same boxes, held by other workers, for all
// cuts of one pattern, which is enough to bound what is communicated (search_tables.h).
// There are few patterns: of a tensor of four dimensions that is halved six times 84
// where no step is ordered, and 4,096 where all are.
//
// A pattern is written as those of its cuts whose other equal steps ascend, kReplicated
// last. Where no step is ordered, it is called a profile.
//
// Output:     the patterns of TensorAlternatives() and OperatorAlternatives()
//             (alternatives.h), in ascending order; those with one of `profiles`, unless
//             that is empty.
// Errors:     none; *complete is false if there are more than `limit`.
// Complexity: O(patterns * steps * candidates), but that of all alternatives where a free
//             step comes before a given one or the mode restricts operators.
#ifndef TOFU_PASSES_SEARCH_PATTERNS_H_
#define TOFU_PASSES_SEARCH_PATTERNS_H_

#include <cstddef>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/search/alternatives.h"

namespace tofu {

struct PatternOptions {
  std::vector<int> parts;  // of the steps
  size_t ordered = 0;      // steps
  std::vector<Cuts> profiles;
  size_t limit = 0;
};

Cuts PatternOf(Cuts cuts, const std::vector<int>& parts, size_t ordered);
// Whether only one order of cuts has this profile: equal steps cut the same.
bool HasOneOrder(const Cuts& profile, const std::vector<int>& parts);

// The most neighbouring steps that may trade places.
int MostTrading(const std::vector<int>& parts);

std::vector<Cuts> TensorPatterns(const Shape& shape, const Cuts& given,
                                 const Restrictions& restrictions, bool may_be_whole,
                                 const PatternOptions& options, bool* complete);
std::vector<Cuts> OperatorPatterns(const Graph& graph, const StrategyTable& table,
                                   int node, const Cuts& given,
                                   const Restrictions& restrictions,
                                   const PatternOptions& options, bool* complete);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_PATTERNS_H_
