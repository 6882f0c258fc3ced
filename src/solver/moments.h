// Memory over time: from uses to segments, and only the moments that matter.
//
// A moment t can be left out if nothing can exceed its capacity, or if whoever keeps
// within the capacity of another moment s keeps within that of t:
//     sum over v of max over x of (bytes_t,v(x) - bytes_s,v(x))  <=  capacity_t -
//     capacity_s.
// Neighbours are compared, each moment with the last one kept; the relation is
// transitive.
//
// Input:      uses (MemoryProfile), or a core whose values or moments became fewer.
// Output:     segments that are normalised (the least of each is 0, what was taken off
//             lowers the capacity), merged where equal, and dropped where 0.
// Invariants: the same choices fit. A capacity below 0 sets `infeasible`.
// Errors:     none.
// Position:   in merge_classes, and in every round of reduce_core.
// Complexity: O(n log n) for the n values of all uses or segments, and for each
// comparison
//             the values of the variables that change in between.
#ifndef TOFU_SOLVER_MOMENTS_H_
#define TOFU_SOLVER_MOMENTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "solver/core_problem.h"

namespace tofu {

// Drops the moments that do not matter and tidies the segments. Returns those kept, by
// the numbers they had.
std::vector<int> CompressMoments(CoreProblem* core);

// Adds up what variables use over time.
class MemoryProfile {
 public:
  MemoryProfile(const std::vector<int>& domain, int64_t limit)
      : limit_(limit), changes_(domain.size()), domain_(domain) {}

  // Of variable v, or of what is used whatever is chosen (-1).
  void Add(int v, int64_t begin, int64_t end, const std::vector<int64_t>& bytes);

  // Sets the core's capacity and segments, compressed.
  void Write(CoreProblem* core) const;

 private:
  int64_t limit_;
  std::map<int64_t, int64_t> fixed_;                              // [moment]: change
  std::vector<std::map<int64_t, std::vector<int64_t>>> changes_;  // [variable][moment]
  std::vector<int> domain_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_MOMENTS_H_
