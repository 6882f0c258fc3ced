#include "passes/cost_table.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tofu {
namespace {

constexpr size_t kMaxPoolCells = size_t{1} << 22;

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

// Calls visit(offsets) for every assignment of the first `rank` variables of
// `scope`, the last one fastest; offsets[j] is the cell of the table with
// strides[j].
template <typename Visit>
void ForEachAssignment(const std::vector<int>& scope, size_t rank,
                       const std::vector<int>& domain,
                       const std::vector<std::vector<int64_t>>& strides, Visit visit) {
  std::vector<int64_t> offsets(strides.size(), 0);
  std::vector<int> digits(rank, 0);
  while (true) {
    visit(offsets);
    size_t d = rank;
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

// One table as MinimizeOut reads it.
struct Operand {
  const int64_t* cells;
  int64_t v_stride;
  int64_t row_stride;
};

// best[j] = min over x_v of the sum of the operands at offsets, in row j.
void MinimizeRow(const std::vector<Operand>& operands,
                 const std::vector<int64_t>& offsets, int num_values,
                 std::vector<int64_t>* sums, int64_t* best, size_t rows) {
  std::fill(best, best + rows, std::numeric_limits<int64_t>::max());
  for (int value = 0; value < num_values; ++value) {
    std::fill(sums->begin(), sums->end(), 0);
    for (size_t t = 0; t < operands.size(); ++t) {
      const Operand& operand = operands[t];
      const int64_t* at = operand.cells + offsets[t] + value * operand.v_stride;
      for (size_t j = 0; j < rows; ++j) {
        (*sums)[j] += at[static_cast<int64_t>(j) * operand.row_stride];
      }
    }
    for (size_t j = 0; j < rows; ++j) best[j] = std::min(best[j], (*sums)[j]);
  }
}

std::vector<int64_t> Minimized(const std::vector<const CostTable*>& tables, int v,
                               const std::vector<int>& scope,
                               const std::vector<int>& domain) {
  std::vector<std::vector<int64_t>> strides;
  std::vector<Operand> operands;
  for (const CostTable* table : tables) {
    strides.push_back(Strides(*table, scope, domain));
    operands.push_back({table->cells->data(), Strides(*table, {v}, domain)[0],
                        scope.empty() ? 0 : strides.back().back()});
  }
  const size_t rows = scope.empty() ? 1 : static_cast<size_t>(domain[scope.back()]);
  std::vector<int64_t> cells(static_cast<size_t>(NumCells(scope, domain)));
  std::vector<int64_t> sums(rows);
  int64_t* next = cells.data();
  ForEachAssignment(scope, scope.empty() ? 0 : scope.size() - 1, domain, strides,
                    [&](const std::vector<int64_t>& offsets) {
                      MinimizeRow(operands, offsets, domain[v], &sums, next, rows);
                      next += rows;
                    });
  return cells;
}

size_t HashOf(const std::vector<int64_t>& values) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL + values.size();
  for (int64_t value : values) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
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

int64_t CostAt(const CostTable& table, int v, int value, const std::vector<int>& values,
               const std::vector<int>& domain) {
  int64_t cell = 0;
  for (int u : table.scope) cell = cell * domain[u] + (u == v ? value : values[u]);
  return (*table.cells)[cell];
}

size_t TablePool::Hash::operator()(const std::vector<int64_t>& key) const {
  return HashOf(key);
}

TablePool::Known TablePool::Keep(Cells cells) {
  const int64_t least = *std::min_element(cells.begin(), cells.end());
  for (int64_t& cell : cells) cell -= least;
  const size_t hash = HashOf(cells);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (*it->second == cells) return {it->second, least};
  }
  num_cells_ += cells.size();
  cells_.push_back(std::move(cells));
  by_hash_.emplace(hash, &cells_.back());
  return {&cells_.back(), least};
}

CostTable TablePool::Intern(std::vector<int> scope, std::vector<int64_t> cells,
                            int64_t* constant) {
  const Known known = Keep(std::move(cells));
  *constant += known.constant;
  return {std::move(scope), known.cells};
}

CostTable TablePool::InternPair(int a, int b, const SharedCells& cost,
                                const std::vector<int>& domain, int64_t* constant) {
  Pair& pair = pairs_[&cost.vector()];
  if (pair.columns != domain[b]) pair = {cost.pointer(), domain[b], {}, {}};
  Known& known = a < b ? pair.straight : pair.turned;
  if (known.cells == nullptr) {
    Cells cells = cost.vector();
    for (int y = 0, i = 0; a > b && y < domain[b]; ++y) {
      for (int x = 0; x < domain[a]; ++x, ++i) cells[i] = cost[x * domain[b] + y];
    }
    known = Keep(std::move(cells));
  }
  *constant += known.constant;
  return {{std::min(a, b), std::max(a, b)}, known.cells};
}

CostTable TablePool::MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                                 const std::vector<int>& domain, int64_t* constant) {
  std::vector<int> scope = UnionScope(tables, v);
  // Everything that the result depends on, apart from the variables' numbers.
  key_.assign(1, domain[v]);
  for (int u : scope) key_.push_back(domain[u]);
  for (const CostTable* table : tables) {
    key_.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(table->cells)));
    for (int u : table->scope) {
      const auto it = std::lower_bound(scope.begin(), scope.end(), u);
      key_.push_back(u == v ? -1 : -2 - (it - scope.begin()));
    }
  }
  Known& known = minimized_[key_];
  if (known.cells == nullptr) known = Keep(Minimized(tables, v, scope, domain));
  *constant += known.constant;
  return {std::move(scope), known.cells};
}

CostTable TablePool::Restrict(const CostTable& table, const std::vector<int>& fixed,
                              const std::vector<int>& domain, int64_t* constant) {
  std::vector<int> scope;
  int64_t base = 0;
  const std::vector<int64_t> all = Strides(table, table.scope, domain);
  for (size_t i = 0; i < table.scope.size(); ++i) {
    const int v = table.scope[i];
    if (fixed[v] < 0) {
      scope.push_back(v);
    } else {
      base += fixed[v] * all[i];
    }
  }
  if (scope.size() == table.scope.size()) return table;
  std::vector<int64_t> cells;
  ForEachAssignment(scope, scope.size(), domain, {Strides(table, scope, domain)},
                    [&](const std::vector<int64_t>& at) {
                      cells.push_back((*table.cells)[base + at[0]]);
                    });
  return Intern(std::move(scope), std::move(cells), constant);
}

void TablePool::Tidy() {
  if (num_cells_ < kMaxPoolCells) return;
  *this = TablePool();
}

}  // namespace tofu
