// Remembers the results of reductions, so that each combination of tables is reduced
// once.
//
// A network of equal layers gives a problem of thousands of tables of which few differ.
// Equal tables share their cells here, so a change is looked up by the addresses of what
// it reads.
//
// Invariants: tables of one memo are equal if and only if their addresses are. All
//             functions but Unify() take tables that came from the memo.
// Errors:     none.
// Memory:     the tables made, at most kMaxMemoCells cells of them; then it starts over.
#ifndef TOFU_SOLVER_TABLE_MEMO_H_
#define TOFU_SOLVER_TABLE_MEMO_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "solver/cost_table.h"

namespace tofu {

// A table as one of its variables sees it: cost of own value x and the other's y.
struct TableEnd {
  const SharedCells* cells = nullptr;
  bool is_first = true;  // whether the own variable is the first
  int own = 0;           // domains
  int other = 0;

  int64_t At(int x, int y) const {
    const size_t row = static_cast<size_t>(is_first ? x : y);
    return (*cells)[row * (is_first ? other : own) + (is_first ? y : x)];
  }
};

// The least over a variable's values for each pair of two others' values, and the value.
struct LeastTable {
  SharedCells cost;        // [x * columns + y], at most kForbidden
  std::vector<int> value;  // [x * columns + y]
};

class TableMemo {
 public:
  // The table of the memo with these cells.
  SharedCells Unify(const SharedCells& cells);

  // Whether some cell of the table is forbidden.
  bool HasForbidden(const SharedCells& cells);

  // The own values whose flag is set.
  SharedCells Shrink(const TableEnd& table, const std::vector<char>& keep);

  // a[x * columns + y] + b, which is transposed if `turned`.
  SharedCells Sum(const SharedCells& a, const SharedCells& b, int columns, bool turned);

  // Over the own values of a variable with these costs and at most two tables.
  const LeastTable& Least(const std::vector<int64_t>& unary,
                          const std::vector<TableEnd>& tables);

  // [own value]: false for those that another is at least as good as, whatever the others
  // choose. Of equally good ones the last stays.
  const std::vector<char>& Undominated(const std::vector<int64_t>& unary,
                                       const std::vector<TableEnd>& tables);

  // Forgets everything when it holds too much, and says so: then tables in use must be
  // unified again.
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
  std::vector<SharedCells> given_;  // whose addresses unified_ knows
  std::unordered_map<const std::vector<int64_t>*, bool> has_forbidden_;
  std::unordered_map<Key, SharedCells, Hash> shrunk_;
  std::unordered_map<Key, SharedCells, Hash> sums_;
  std::unordered_map<Key, LeastTable, Hash> least_;
  std::unordered_map<Key, std::vector<char>, Hash> undominated_;
  size_t num_cells_ = 0;
  Key key_;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_TABLE_MEMO_H_
