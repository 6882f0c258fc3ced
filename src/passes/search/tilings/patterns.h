// Patterns: cuts without the order of a plan's last steps.
//
// Neighbouring steps of equal parts may trade places. A pattern says which dimension each
// of the first `ordered` steps cuts, and how often the others cut each dimension, and in
// how many parts. All cuts of one pattern have the same boxes as tiles and regions, held
// by other workers; that is enough to bound communication (search_tables.h). Patterns are
// few: a tensor of four dimensions that is halved six times has 84 if no step is ordered,
// and 4,096 if all are.
//
// A pattern is written as its cuts that ascend over equal steps that are not ordered,
// with kTerms and kReplicated last. If no step is ordered, it is called a profile.
//
// Output:     the patterns of TensorAlternatives() and OperatorAlternatives()
//             (alternatives.h), in ascending order. Unless `profiles` is empty, only
//             patterns with one of these profiles.
// Errors:     none; *complete is false if there are more than `limit`.
// Complexity: O(patterns * steps * candidates), but that of all alternatives where a free
//             step comes before a given one or the mode restricts operators.
#ifndef TOFU_PASSES_SEARCH_TILINGS_PATTERNS_H_
#define TOFU_PASSES_SEARCH_TILINGS_PATTERNS_H_

#include <cstddef>
#include <vector>

#include "graph/cuts.h"
#include "passes/search/tilings/alternatives.h"

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
                                 const Restrictions& restrictions, TensorFreedom free,
                                 const PatternOptions& options, bool* complete);
std::vector<Cuts> OperatorPatterns(const SplitVariables& variables, const Cuts& given,
                                   const Restrictions& restrictions,
                                   const PatternOptions& options, bool* complete);

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_TILINGS_PATTERNS_H_
