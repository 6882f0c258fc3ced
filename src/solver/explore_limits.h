// Finds the trade-off of what choices use against what they cost: all pairs that no other
// pair beats in both (TensorOpt, Cai et al., calls them the cost frontier).
//
// Let c(L) be the least cost of a choice that uses at most L. A search at L that finds a
// choice using u <= L tells c on all of u .. L. What is left is gaps between choices, and
// each search divides one of them:
//
//            c
//            |---o            o  choices found, at (used, cost)
//            |   | gap   o----   - c is known there
//            |           |
//            +---u-----L-u'----> limit
//
// The least limit is searched first, then the middle of the gap where least is known: of
// the greatest product of width and difference in cost. If the middle costs what the low
// end does, the high end is next. When no gap is left, the pairs are all there are. Until
// then c in a gap lies between the costs at its ends.
//
// Input:      the cheapest choice without a limit; others that are known, of which the
//             smallest is the low end; a number that no choice uses less than; how to
//             search.
// Output:     the pairs that no other one found beats, by ascending use; whether they are
//             all there are, which holds only if every search was exact.
// Errors:     none.
// Complexity: of two searches in a gap, one finds another pair or closes the gap.
#ifndef TOFU_SOLVER_EXPLORE_LIMITS_H_
#define TOFU_SOLVER_EXPLORE_LIMITS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "solver/deadline.h"

namespace tofu {

struct LimitPoint {
  int64_t used = 0;
  int64_t cost = 0;
  bool is_proven = false;  // nothing that is within the searched limit costs less
  int id = 0;              // the caller's
};

// The cheapest choice that uses at most `limit`; it never costs more than `best`, the
// best one known that does.
using SearchWithin = std::function<LimitPoint(int64_t limit, const LimitPoint& best)>;

struct ExploreOptions {
  int64_t least = 0;      // no choice uses less
  int max_searches = 16;  // further ones would only find pairs between those found
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
