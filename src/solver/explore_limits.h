// Finds the trade-off between the memory that choices use and their cost: all pairs
// (used, cost) that no other pair beats in both (the cost frontier of TensorOpt, Cai et
// al.).
//
// Let c(L) be the least cost of a choice that uses at most L. A search at L that finds a
// choice using u <= L tells c on all of u .. L. Gaps between choices are left, and each
// search divides one of them:
//
//            c
//            |---o            o  choices found, at (used, cost)
//            |   | gap   o----   - c is known there
//            |           |
//            +---u-----L-u'----> limit
//
// The least limit is searched first, then the middle of the gap with the greatest product
// of width and difference in cost. If the middle costs as much as the low end, the high
// end is next. When no gap is left, no pair is missing. Until then, c in a gap lies
// between the costs at its ends.
//
// Input:      the cheapest choice without a limit; other known choices, of which the
//             smallest is the low end; a bound of the memory that any choice uses; the
//             search.
// Output:     the pairs that no other found pair beats, by ascending use; whether none is
//             missing, which requires that every search was exact.
// Errors:     none.
// Complexity: of two searches in a gap, one finds another pair or closes the gap.
#ifndef TOFU_SOLVER_EXPLORE_LIMITS_H_
#define TOFU_SOLVER_EXPLORE_LIMITS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "solver/problem/deadline.h"

namespace tofu {

struct LimitPoint {
  int64_t used = 0;
  int64_t cost = 0;
  bool is_proven = false;  // no choice within the searched limit costs less
  int id = 0;              // chosen by the caller
};

// Returns the cheapest choice that uses at most `limit`, which costs no more than `best`,
// the best known one.
using SearchWithin = std::function<LimitPoint(int64_t limit, const LimitPoint& best)>;

struct ExploreOptions {
  int64_t least = 0;      // no choice uses less
  int max_searches = 16;  // later searches only find pairs between the known ones
  Deadline deadline = Deadline::max();
};

struct LimitFrontier {
  std::vector<LimitPoint> points;
  bool is_complete = false;
};

LimitFrontier ExploreLimits(const LimitPoint& cheapest, std::vector<LimitPoint> known,
                            const ExploreOptions& options, const SearchWithin& search);

}  // namespace tofu

#endif  // TOFU_SOLVER_EXPLORE_LIMITS_H_
