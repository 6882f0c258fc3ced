// Remembers the results of reductions, so that each combination of tables is reduced
// once.
//
// The problem of a network of equal layers has thousands of tables, of which few differ.
// Equal tables share their cells here, so the memo finds a result by the addresses of the
// tables that it was computed from.
//
// Invariants: tables of one memo are equal if and only if their addresses are. All
//             functions but Unify() take tables that came from the memo.
// Errors:     none.
// Memory:     all tables made, up to kMaxMemoCells cells; then the memo starts over.
#ifndef TOFU_SOLVER_PROBLEM_TABLE_MEMO_H_
#define TOFU_SOLVER_PROBLEM_TABLE_MEMO_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "solver/problem/cost_table.h"

namespace tofu {

// A table seen from one of its variables: the cost of own value x and the other's y.
struct TableEnd {
  const SharedCells* cells = nullptr;
  bool is_first = true;  // whether the own variable is the first
  int own = 0;           // domain of the own variable
  int other = 0;

  int64_t At(int x, int y) const {
    const size_t row = static_cast<size_t>(is_first ? x : y);
    return (*cells)[row * (is_first ? other : own) + (is_first ? y : x)];
  }
};

// The least cost over a variable's values, and the value that has it, for each pair of
// values of two other variables.
struct LeastTable {
  SharedCells cost;        // [x * columns + y], at most kForbidden
  std::vector<int> value;  // [x * columns + y]
};

class TableMemo {
 public:
  // Returns the memo's table with these cells.
  SharedCells Unify(const SharedCells& cells);

  // Whether some cell of the table is forbidden.
  bool HasForbidden(const SharedCells& cells);

  // Returns the table of the own values whose flag is set.
  SharedCells Shrink(const TableEnd& table, const std::vector<char>& keep);

  // Returns a[x * columns + y] + b, where b is transposed if `turned`.
  SharedCells Sum(const SharedCells& a, const SharedCells& b, int columns, bool turned);

  // Minimises out a variable with these costs and at most two tables.
  const LeastTable& Least(const std::vector<int64_t>& unary,
                          const std::vector<TableEnd>& tables);

  // [own value]: false if another value costs no more, whatever the other variables
  // choose. Of equal values the last one stays.
  const std::vector<char>& Undominated(const std::vector<int64_t>& unary,
                                       const std::vector<TableEnd>& tables);

  // Forgets all tables if they have too many cells. Returns whether it did: then tables
  // in use must be unified again.
  bool Tidy();

 private:
  using Key = std::vector<int64_t>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  SharedCells Intern(std::vector<int64_t> cells);
  void SetKey(const std::vector<int64_t>& unary, const std::vector<TableEnd>& tables);
  void Add(const TableEnd& table);

  std::unordered_multimap<size_t, SharedCells> by_hash_;
  std::unordered_map<const std::vector<int64_t>*, SharedCells> unified_;
  std::vector<SharedCells> given_;  // keeps the addresses that unified_ knows in use
  std::unordered_map<const std::vector<int64_t>*, bool> has_forbidden_;
  std::unordered_map<Key, SharedCells, Hash> shrunk_;
  std::unordered_map<Key, SharedCells, Hash> sums_;
  std::unordered_map<Key, LeastTable, Hash> least_;
  std::unordered_map<Key, std::vector<char>, Hash> undominated_;
  size_t num_cells_ = 0;
  Key key_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_PROBLEM_TABLE_MEMO_H_
