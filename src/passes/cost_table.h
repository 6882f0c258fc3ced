// Tables of costs over a few variables, and how they are summed, minimised and
// restricted: the arithmetic of variable elimination.
#ifndef TOFU_PASSES_COST_TABLE_H_
#define TOFU_PASSES_COST_TABLE_H_

#include <cstdint>
#include <vector>

namespace tofu {

struct CostTable {
  std::vector<int> scope;      // variables, ascending
  std::vector<int64_t> cells;  // row-major, the last variable fastest
};

// Cells of a table over `scope`; as a double, because it may be any number.
double NumCells(const std::vector<int>& scope, const std::vector<int>& domain);

// Union of the tables' variables without `v`, ascending.
std::vector<int> UnionScope(const std::vector<const CostTable*>& tables, int v);

// M(x) = min over x_v of the sum of the tables, over UnionScope(tables, v).
CostTable MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                      const std::vector<int>& domain);

// The table with every variable that has fixed[v] >= 0 at that value.
CostTable Restrict(const CostTable& table, const std::vector<int>& fixed,
                   const std::vector<int>& domain);

// The table's cost when v has value `value` and the others those of `values`.
int64_t CostAt(const CostTable& table, int v, int value, const std::vector<int>& values,
               const std::vector<int>& domain);

}  // namespace tofu

#endif  // TOFU_PASSES_COST_TABLE_H_
