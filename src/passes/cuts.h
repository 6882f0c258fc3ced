// All ways to cut a tensor, or to split an operator, at the steps of a plan.
#ifndef TOFU_PASSES_CUTS_H_
#define TOFU_PASSES_CUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tofu {

// One decision a step: a dimension of a tensor or a variable of an operator, or
// kReplicated.
using Cuts = std::vector<int>;

constexpr int kFree = -2;  // a step that is still to be decided

// When a step may leave a tensor or an operator whole. A dimension that divides
// at a step, but then no longer at a later step that is given to cut it, counts
// as one that does not divide.
enum class WholeStep { kOnlyWhenNothingDivides, kAlways };

// Every way to fill the free steps of `given` from `candidates`, in
// lexicographic order of the candidates (kReplicated last). A candidate is
// possible at a step when the extent that the earlier steps left divides by
// parts[step]; `given`'s own decisions must stay possible. Returns fewer than
// all, and sets *complete to false, when there are more than `limit`.
std::vector<Cuts> EnumerateCuts(const std::vector<int64_t>& extents,
                                const std::vector<int>& candidates, const Cuts& given,
                                const std::vector<int>& parts, WholeStep whole,
                                size_t limit, bool* complete);

}  // namespace tofu

#endif  // TOFU_PASSES_CUTS_H_
