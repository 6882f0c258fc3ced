// Memory over time: adds up the bytes that variables use, and keeps only the moments that
// restrict choices.
//
// A moment t can be left out if no choice can exceed its capacity, or if every choice
// within the capacity of another moment s is also within that of t:
//     sum over v of max over x of (bytes_t,v(x) - bytes_s,v(x))
//         <=  capacity_t - capacity_s.
// The relation is transitive, so each moment is compared only with the last one kept.
//
// Input:      uses of variables (MemoryProfile); a problem that has lost values.
// Output:     segments and capacities; of a core, segments are normalised (the least of
//             each is subtracted from it and from the capacity), merged if equal, and
//             dropped if 0.
// Invariants: the same choices fit. A capacity below 0 sets `infeasible`.
// Errors:     none.
// Position:   in merge_classes, and in every round of reduce_core.
// Complexity: O(n log n) for the n values of all uses or segments, and, per comparison,
//             the values of the variables that change in between.
#ifndef TOFU_SOLVER_PROBLEM_MOMENTS_H_
#define TOFU_SOLVER_PROBLEM_MOMENTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "solver/problem/choice_problem.h"

namespace tofu {

// Drops the moments that restrict no choice and tidies the segments. Returns the old
// numbers of the other moments.
std::vector<int> CompressMoments(ChoiceProblem* core);

// Adds up the memory that variables use over time.
class MemoryProfile {
 public:
  explicit MemoryProfile(const std::vector<int>& domain)
      : changes_(domain.size()), domain_(domain) {}

  // Adds a use of variable v, or memory that every choice uses (v = -1).
  void Add(int v, int64_t begin, int64_t end, const std::vector<int64_t>& bytes);

  // Sets the capacity and the segments of a problem of this domain within the limit.
  // Returns [moment]: the time that it has in Add().
  std::vector<int64_t> Write(int64_t limit, ChoiceProblem* problem) const;

 private:
  std::map<int64_t, int64_t> fixed_;                              // [moment]: change
  std::vector<std::map<int64_t, std::vector<int64_t>>> changes_;  // [variable][moment]
  std::vector<int> domain_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_MOMENTS_H_
