// Lower bounds by moving costs between tables (soft arc consistency), with prices for
// memory (Lagrange multipliers).
//
// For prices p_t >= 0 every choice x that fits costs at least
//     sum_v u_v(x_v) + sum_e c_e(x_a, x_b) + sum_t p_t (load_t(x) - capacity_t).
// This is rewritten, its value unchanged for every x, as
//     c_0 + sum_v c_v(x_v) + sum_e c'_e(x_a, x_b)    with c_v >= 0 and c'_e >= 0,
// so c_0 is a bound, and a value x of v with c_0 + c_v(x) above the cost of a known
// choice can be removed. A sweep visits the variables in ascending or descending order.
// At each it
//     collects  from every table to a variable visited earlier all that it guarantees,
//     moves     the least c_v to c_0,
//     removes   values that cost too much,
//     shares    c_v equally among the tables to variables not yet visited; the number of
//               shares is that of the side with more tables.
// This is the sequential message passing known as TRW-S. c_0 never falls.
//
// Prices follow the loads of the choice that a sweep rounds to (Sweep), by a deflected
// subgradient.
//
// Arithmetic: costs are scaled by a power of two and stored in doubles as whole numbers
//             below 2^53, so sums are exact. Shares and penalties are rounded down, so
//             the bound holds without any tolerance.
// Complexity: a sweep takes O(cells), a change of prices O(moments + bytes in segments).
#ifndef TOFU_SOLVER_DUAL_ASCENT_H_
#define TOFU_SOLVER_DUAL_ASCENT_H_

#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "solver/problem/choice_problem.h"
#include "solver/reduce_core.h"

namespace tofu {

// The state that sweeps change. One list holds the values of all variables; those of v
// start at first_value(v).
struct DualState {
  std::vector<double> node;     // c_v
  std::vector<double> taken;    // cost that each end of a pair has taken from its table
  std::vector<double> penalty;  // cost that the prices add to u_v
  std::vector<double> prices;   // [moment]
  double price_constant = 0;    // at least the sum of price * capacity
  double constant = 0;          // c_0
  double top = std::numeric_limits<double>::max();  // values from here up are removed
  bool empty = false;                               // no choice below the top is left
  std::vector<double> scratch;
};

class DualAscent {
 public:
  // `top`: the highest that any state of this ascent will have. The core must outlive
  // this object.
  DualAscent(const ChoiceProblem& core, int64_t top);

  // A state that looks only for choices that cost less than `top`.
  DualState Start(int64_t top) const;
  void LowerTop(int64_t top, DualState* state) const;

  // One sweep. Sets `rounded`, unless null, to a choice that the costs suggest.
  void Sweep(bool forward, DualState* state, std::vector<int>* rounded) const;

  // Sets the prices; lowers all by one factor if sums would not be exact otherwise.
  void SetPrices(std::vector<double> prices, DualState* state) const;

  // A lower bound on the cost of every choice that fits.
  int64_t Bound(const DualState& state) const;

  // Removes value x of v.
  void Remove(int v, int x, DualState* state) const;
  bool IsRemoved(const DualState& state, int v, int x) const {
    return state.node[first_value_[v] + x] == kRemoved;
  }
  // c_v(x), at least 0; not scaled back.
  double Reduced(const DualState& state, int v, int x) const {
    return state.node[first_value_[v] + x];
  }
  int first_value(int v) const { return first_value_[v]; }
  // One unit of the core's costs is two to this power in the state's costs.
  int exponent() const { return exponent_; }
  int64_t highest() const { return highest_; }
  // A cost in the state's units, rounded down.
  double Scaled(int64_t cost) const;
  ValueMask Wanted(const DualState& state) const;

 private:
  static constexpr double kRemoved = std::numeric_limits<double>::infinity();

  // A pair, seen from one of its ends.
  struct End {
    int other = 0;
    const double* table = nullptr;  // [x_other][x_own]
    int own_taken = 0;              // position of the own values in DualState::taken
    int other_taken = 0;
  };

  // Returns the table's cells; the transposed table follows them.
  const double* AddTable(const SharedCells& cost, int rows, int columns);
  void Collect(int v, const End& end, DualState* state) const;
  void Round(int v, const std::vector<End>& before, DualState* state,
             std::vector<int>* rounded) const;
  void TakeLeast(int v, DualState* state) const;
  void RemoveDear(int v, DualState* state) const;
  void Normalize(DualState* state) const;
  void Share(int v, const std::vector<End>& after, size_t parts, DualState* state) const;

  const ChoiceProblem& core_;
  int64_t highest_;                         // higher costs count as this one
  int exponent_ = 0;                        // of the scale
  std::vector<int> first_value_;            // [variable], one more at the end
  std::deque<std::vector<double>> tables_;  // each with its transposed cells
  std::vector<std::vector<End>> before_;    // [variable]: pairs to lower ones
  std::vector<std::vector<End>> after_;
  int num_taken_ = 0;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_DUAL_ASCENT_H_
