// Tables of costs over a few variables, and how they are summed, minimised and
// restricted: the arithmetic of variable elimination.
//
// A graph of repeated layers, blocks or timesteps eliminates the same tables
// again and again. So equal cells are kept once, less their minimum, in a pool
// that also remembers what it has minimised: the second of two equal blocks
// costs a look-up. In a chain of equal blocks the tables soon repeat up to a
// constant, as the powers of a min-plus matrix do, so that its length costs
// look-ups only.
//
// Invariants: cells of one pool are equal if and only if their addresses are;
//             the least of them is 0.
// Complexity: MinimizeOut: |M| * domain[v] * r for r tables that are new, O(the
//             length of their scopes) for known ones.
// Memory:     what is remembered, at most kMaxPoolCells cells; then the pool
//             starts anew (Tidy).
#ifndef TOFU_PASSES_COST_TABLE_H_
#define TOFU_PASSES_COST_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tofu {

// Cells that many owners read.
class SharedCells {
 public:
  SharedCells() : SharedCells(std::vector<int64_t>()) {}
  SharedCells(std::vector<int64_t> cells)  // NOLINT: as convenient as a vector
      : cells_(std::make_shared<const std::vector<int64_t>>(std::move(cells))) {}
  SharedCells(std::initializer_list<int64_t> cells)
      : SharedCells(std::vector<int64_t>(cells)) {}

  int64_t operator[](size_t i) const { return (*cells_)[i]; }
  size_t size() const { return cells_->size(); }
  const std::vector<int64_t>& vector() const { return *cells_; }
  const std::shared_ptr<const std::vector<int64_t>>& pointer() const { return cells_; }

 private:
  std::shared_ptr<const std::vector<int64_t>> cells_;
};

struct CostTable {
  std::vector<int> scope;                       // variables, ascending
  const std::vector<int64_t>* cells = nullptr;  // row-major, the last variable fastest
};

// Cells of a table over `scope`; as a double, because it may be any number.
double NumCells(const std::vector<int>& scope, const std::vector<int>& domain);

// Union of the tables' variables without `v`, ascending.
std::vector<int> UnionScope(const std::vector<const CostTable*>& tables, int v);

// The table's cost when v has value `value` and the others those of `values`.
int64_t CostAt(const CostTable& table, int v, int value, const std::vector<int>& values,
               const std::vector<int>& domain);

class TablePool {
 public:
  // Every method adds to *constant what it takes off the cells.

  CostTable Intern(std::vector<int> scope, std::vector<int64_t> cells, int64_t* constant);

  // cost[x_a * domain[b] + x_b], whichever of a and b is lower.
  CostTable InternPair(int a, int b, const SharedCells& cost,
                       const std::vector<int>& domain, int64_t* constant);

  // M(x) = min over x_v of the sum of the tables, over UnionScope(tables, v).
  CostTable MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                        const std::vector<int>& domain, int64_t* constant);

  // The table with every variable that has fixed[v] >= 0 at that value.
  CostTable Restrict(const CostTable& table, const std::vector<int>& fixed,
                     const std::vector<int>& domain, int64_t* constant);

  size_t num_tables() const { return cells_.size(); }

  // Forgets everything when there is too much of it. No table may be in use.
  void Tidy();

 private:
  using Cells = std::vector<int64_t>;
  struct Known {
    const Cells* cells = nullptr;
    int64_t constant = 0;
  };
  struct Hash {
    size_t operator()(const std::vector<int64_t>& key) const;
  };
  struct Pair {
    std::shared_ptr<const Cells> owner;  // keeps the address in use
    int columns = 0;                     // domain of b
    Known straight;
    Known turned;
  };

  Known Keep(Cells cells);

  std::deque<Cells> cells_;
  size_t num_cells_ = 0;
  std::unordered_multimap<size_t, const Cells*> by_hash_;
  std::unordered_map<const Cells*, Pair> pairs_;
  std::unordered_map<std::vector<int64_t>, Known, Hash> minimized_;
  std::vector<int64_t> key_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_COST_TABLE_H_
