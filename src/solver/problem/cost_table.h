// The arithmetic of variable elimination: sums, minimises and restricts tables of costs
// over a few variables.
//
// A graph of repeated layers, blocks or timesteps eliminates the same tables
// again and again. So a pool stores equal cells once, minus their minimum, and
// caches the results of minimisations: the second of two equal blocks costs a
// look-up. In a chain of equal blocks the tables soon repeat up to a constant,
// as the powers of a min-plus matrix do, so a longer chain costs only look-ups.
//
// Invariants: cells of one pool are equal if and only if their addresses are;
//             the least of them is 0.
// Complexity: MinimizeOut takes |M| * domain[v] * r additions for r tables; a cached
//             result takes O(the length of their scopes).
// Memory:     at most kMaxPoolCells cells are cached; then Tidy empties the pool.
#ifndef TOFU_SOLVER_PROBLEM_COST_TABLE_H_
#define TOFU_SOLVER_PROBLEM_COST_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tofu {

// Read-only cells with several owners.
class SharedCells {
 public:
  SharedCells() : SharedCells(std::vector<int64_t>()) {}
  SharedCells(std::vector<int64_t> cells)  // NOLINT: as convenient as a vector
      : cells_(std::make_shared<const std::vector<int64_t>>(std::move(cells))) {}
  SharedCells(std::initializer_list<int64_t> cells)
      : SharedCells(std::vector<int64_t>(cells)) {}

  int64_t operator[](size_t i) const { return (*cells_)[i]; }
  size_t size() const { return cells_->size(); }
  bool empty() const { return cells_->empty(); }
  const int64_t* begin() const { return cells_->data(); }
  const int64_t* end() const { return cells_->data() + cells_->size(); }
  friend bool operator==(const SharedCells& a, const SharedCells& b) {
    return a.cells_ == b.cells_ || *a.cells_ == *b.cells_;
  }
  const std::vector<int64_t>& vector() const { return *cells_; }
  const std::shared_ptr<const std::vector<int64_t>>& pointer() const { return cells_; }

 private:
  std::shared_ptr<const std::vector<int64_t>> cells_;
};

struct CostTable {
  std::vector<int> scope;                       // variables, ascending
  const std::vector<int64_t>* cells = nullptr;  // row-major, the last variable fastest
};

// The number of cells of a table over `scope`; a double, because it may exceed int64.
double NumCells(const std::vector<int>& scope, const std::vector<int>& domain);

// The union of the tables' variables without `v`, ascending.
std::vector<int> UnionScope(const std::vector<const CostTable*>& tables, int v);

// The table's cost when v has value `value` and the others those of `values`.
int64_t CostAt(const CostTable& table, int v, int value, const std::vector<int>& values,
               const std::vector<int>& domain);

// Describes a sum of tables that is minimised, except for their cells.
struct SumPattern {
  static constexpr int kMinimized = -1;

  int num_values = 0;       // of the variable that is minimised out
  std::vector<int> domain;  // of the other variables, in the order of the result
  // [table][its variable]: the variable's place in `domain`, or kMinimized
  std::vector<std::vector<int>> operands;
};

class TablePool {
 public:
  using Cells = std::vector<int64_t>;
  // Cells in the pool, and the minimum that was subtracted from each cell.
  struct Known {
    const Cells* cells = nullptr;
    int64_t constant = 0;
  };

  Known Intern(Cells cells);

  // cost[x_a * columns + x_b], transposed if `turned`.
  Known InternPair(const SharedCells& cost, int columns, bool turned);

  // The number of a pattern; it never changes.
  int Number(SumPattern pattern);

  // Returns M(x) = min over one variable of the sum of the tables: the cells of the
  // pattern's operands; null stands for zeros.
  Known Minimize(int pattern, const std::vector<const Cells*>& tables);

  // Additions spent on minimisations so far; cached results cost none.
  double work() const { return work_; }

  // Minimises a sum of tables over variable v. The result is over UnionScope(tables, v);
  // adds the minimum that is subtracted from its cells to *constant.
  CostTable MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                        const std::vector<int>& domain, int64_t* constant);
  // Fixes every variable of the table that has fixed[v] >= 0 at that value.
  CostTable Restrict(const CostTable& table, const std::vector<int>& fixed,
                     const std::vector<int>& domain, int64_t* constant);

  size_t num_tables() const { return cells_.size(); }

  // Deletes all tables if there are too many. The caller must not be using any.
  void Tidy();

 private:
  template <typename Number>
  struct Hash {
    size_t operator()(const std::vector<Number>& key) const;
  };
  struct Pair {
    std::shared_ptr<const Cells> owner;  // keeps the address in use
    int columns = 0;                     // domain of b
    Known straight;
    Known turned;
  };

  std::deque<Cells> cells_;
  size_t num_cells_ = 0;
  double work_ = 0;
  std::unordered_multimap<size_t, const Cells*> by_hash_;
  std::unordered_map<const Cells*, Pair> pairs_;
  std::unordered_map<std::vector<int64_t>, Known, Hash<int64_t>> minimized_;
  std::deque<SumPattern> patterns_;
  std::unordered_map<std::vector<int>, int, Hash<int>> pattern_numbers_;
  std::vector<int64_t> key_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_COST_TABLE_H_
