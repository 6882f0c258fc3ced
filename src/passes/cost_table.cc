#include "passes/cost_table.h"

#include <algorithm>
#include <limits>

namespace tofu {
namespace {

// Cells between neighbouring values of each variable of `scope` in `table`; 0
// for a variable that the table does not mention.
std::vector<int64_t> Strides(const CostTable& table, const std::vector<int>& scope,
                             const std::vector<int>& domain) {
  std::vector<int64_t> strides(scope.size(), 0);
  int64_t stride = 1;
  for (size_t i = table.scope.size(); i-- > 0;) {
    const auto it = std::find(scope.begin(), scope.end(), table.scope[i]);
    if (it != scope.end()) strides[it - scope.begin()] = stride;
    stride *= domain[table.scope[i]];
  }
  return strides;
}

// Calls visit(offsets) for every assignment of `scope`, the last variable
// fastest; offsets[j] is the cell of table j with strides[j].
template <typename Visit>
void ForEachAssignment(const std::vector<int>& scope, const std::vector<int>& domain,
                       const std::vector<std::vector<int64_t>>& strides, Visit visit) {
  std::vector<int64_t> offsets(strides.size(), 0);
  std::vector<int> digits(scope.size(), 0);
  while (true) {
    visit(offsets);
    size_t d = scope.size();
    while (d > 0 && digits[d - 1] + 1 == domain[scope[d - 1]]) {
      --d;
      for (size_t j = 0; j < strides.size(); ++j) {
        offsets[j] -= strides[j][d] * digits[d];
      }
      digits[d] = 0;
    }
    if (d == 0) return;
    ++digits[d - 1];
    for (size_t j = 0; j < strides.size(); ++j) offsets[j] += strides[j][d - 1];
  }
}

}  // namespace

double NumCells(const std::vector<int>& scope, const std::vector<int>& domain) {
  double cells = 1;
  for (int v : scope) cells *= domain[v];
  return cells;
}

std::vector<int> UnionScope(const std::vector<const CostTable*>& tables, int v) {
  std::vector<int> scope;
  for (const CostTable* table : tables) {
    scope.insert(scope.end(), table->scope.begin(), table->scope.end());
  }
  std::sort(scope.begin(), scope.end());
  scope.erase(std::unique(scope.begin(), scope.end()), scope.end());
  scope.erase(std::remove(scope.begin(), scope.end(), v), scope.end());
  return scope;
}

CostTable MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                      const std::vector<int>& domain) {
  CostTable result;
  result.scope = UnionScope(tables, v);
  std::vector<std::vector<int64_t>> strides;
  std::vector<int64_t> v_strides;
  for (const CostTable* table : tables) {
    strides.push_back(Strides(*table, result.scope, domain));
    v_strides.push_back(Strides(*table, {v}, domain)[0]);
  }
  result.cells.reserve(static_cast<size_t>(NumCells(result.scope, domain)));
  ForEachAssignment(result.scope, domain, strides, [&](const std::vector<int64_t>& at) {
    int64_t best = std::numeric_limits<int64_t>::max();
    for (int64_t value = 0; value < domain[v]; ++value) {
      int64_t sum = 0;
      for (size_t j = 0; j < tables.size(); ++j) {
        sum += tables[j]->cells[at[j] + value * v_strides[j]];
      }
      best = std::min(best, sum);
    }
    result.cells.push_back(best);
  });
  return result;
}

CostTable Restrict(const CostTable& table, const std::vector<int>& fixed,
                   const std::vector<int>& domain) {
  CostTable result;
  int64_t base = 0;
  const std::vector<int64_t> all = Strides(table, table.scope, domain);
  for (size_t i = 0; i < table.scope.size(); ++i) {
    const int v = table.scope[i];
    if (fixed[v] < 0) {
      result.scope.push_back(v);
    } else {
      base += fixed[v] * all[i];
    }
  }
  if (result.scope.size() == table.scope.size()) return table;
  ForEachAssignment(result.scope, domain, {Strides(table, result.scope, domain)},
                    [&](const std::vector<int64_t>& at) {
                      result.cells.push_back(table.cells[base + at[0]]);
                    });
  return result;
}

int64_t CostAt(const CostTable& table, int v, int value, const std::vector<int>& values,
               const std::vector<int>& domain) {
  int64_t cell = 0;
  for (int u : table.scope) cell = cell * domain[u] + (u == v ? value : values[u]);
  return table.cells[cell];
}

}  // namespace tofu
