#include "solver/cost_table.h"

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

// Calls visit(offsets) for every assignment of the first `rank` variables with
// these domains; the last one changes fastest. offsets[j] is the cell of the table
// with strides[j].
template <typename Visit>
void ForEachAssignment(const std::vector<int>& domain, size_t rank,
                       const std::vector<std::vector<int64_t>>& strides, Visit visit) {
  std::vector<int64_t> offsets(strides.size(), 0);
  std::vector<int> digits(rank, 0);
  while (true) {
    visit(offsets);
    size_t d = rank;
    while (d > 0 && digits[d - 1] + 1 == domain[d - 1]) {
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

// One table that MinimizeOut reads.
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

// Cells between neighbouring values, in the table of one operand, for every variable
// of the result and then for the one that is minimised out.
std::vector<int64_t> OperandStrides(const SumPattern& pattern,
                                    const std::vector<int>& places, int64_t* of_value) {
  std::vector<int64_t> strides(pattern.domain.size(), 0);
  int64_t stride = 1;
  for (size_t i = places.size(); i-- > 0;) {
    const bool is_value = places[i] == SumPattern::kMinimized;
    (is_value ? *of_value : strides[places[i]]) = stride;
    stride *= is_value ? pattern.num_values : pattern.domain[places[i]];
  }
  return strides;
}

std::vector<int64_t> Minimized(const SumPattern& pattern,
                               const std::vector<const std::vector<int64_t>*>& tables) {
  std::vector<std::vector<int64_t>> strides;
  std::vector<Operand> operands;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t] == nullptr) continue;
    Operand operand = {tables[t]->data(), 0, 0};
    strides.push_back(OperandStrides(pattern, pattern.operands[t], &operand.v_stride));
    if (!strides.back().empty()) operand.row_stride = strides.back().back();
    operands.push_back(operand);
  }
  const std::vector<int>& domain = pattern.domain;
  const size_t rows = domain.empty() ? 1 : static_cast<size_t>(domain.back());
  size_t count = 1;
  for (int size : domain) count *= static_cast<size_t>(size);
  std::vector<int64_t> cells(count);
  std::vector<int64_t> sums(rows);
  int64_t* next = cells.data();
  ForEachAssignment(domain, domain.empty() ? 0 : domain.size() - 1, strides,
                    [&](const std::vector<int64_t>& offsets) {
                      MinimizeRow(operands, offsets, pattern.num_values, &sums, next,
                                  rows);
                      next += rows;
                    });
  return cells;
}

template <typename Number>
size_t HashOf(const std::vector<Number>& values) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL + values.size();
  for (Number value : values) {
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

template <typename Number>
size_t TablePool::Hash<Number>::operator()(const std::vector<Number>& key) const {
  return HashOf(key);
}

TablePool::Known TablePool::Intern(Cells cells) {
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

TablePool::Known TablePool::InternPair(const SharedCells& cost, int columns,
                                       bool turned) {
  Pair& pair = pairs_[&cost.vector()];
  if (pair.columns != columns) pair = {cost.pointer(), columns, {}, {}};
  Known& known = turned ? pair.turned : pair.straight;
  if (known.cells == nullptr) {
    Cells cells = cost.vector();
    const int rows = static_cast<int>(cells.size()) / columns;
    for (int y = 0, i = 0; turned && y < columns; ++y) {
      for (int x = 0; x < rows; ++x, ++i) cells[i] = cost[x * columns + y];
    }
    known = Intern(std::move(cells));
  }
  return known;
}

int TablePool::Number(SumPattern pattern) {
  std::vector<int> key = {pattern.num_values};
  const auto add = [&key](const std::vector<int>& list) {
    key.push_back(static_cast<int>(list.size()));
    key.insert(key.end(), list.begin(), list.end());
  };
  add(pattern.domain);
  for (const std::vector<int>& places : pattern.operands) add(places);
  const auto [it, is_new] =
      pattern_numbers_.emplace(std::move(key), static_cast<int>(patterns_.size()));
  if (is_new) patterns_.push_back(std::move(pattern));
  return it->second;
}

TablePool::Known TablePool::Minimize(int pattern,
                                     const std::vector<const Cells*>& tables) {
  key_.assign(1, pattern);
  for (const Cells* cells : tables) {
    key_.push_back(static_cast<int64_t>(reinterpret_cast<intptr_t>(cells)));
  }
  Known& known = minimized_[key_];
  if (known.cells == nullptr) known = Intern(Minimized(patterns_[pattern], tables));
  return known;
}

CostTable TablePool::MinimizeOut(const std::vector<const CostTable*>& tables, int v,
                                 const std::vector<int>& domain, int64_t* constant) {
  std::vector<int> scope = UnionScope(tables, v);
  SumPattern pattern{domain[v], {}, {}};
  for (int u : scope) pattern.domain.push_back(domain[u]);
  std::vector<const Cells*> cells;
  for (const CostTable* table : tables) {
    cells.push_back(table->cells);
    std::vector<int>& places = pattern.operands.emplace_back();
    for (int u : table->scope) {
      const auto it = std::lower_bound(scope.begin(), scope.end(), u);
      places.push_back(u == v ? SumPattern::kMinimized
                              : static_cast<int>(it - scope.begin()));
    }
  }
  const Known known = Minimize(Number(std::move(pattern)), cells);
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
  std::vector<int> sizes;
  for (int v : scope) sizes.push_back(domain[v]);
  Cells cells;
  ForEachAssignment(sizes, sizes.size(), {Strides(table, scope, domain)},
                    [&](const std::vector<int64_t>& at) {
                      cells.push_back((*table.cells)[base + at[0]]);
                    });
  const Known known = Intern(std::move(cells));
  *constant += known.constant;
  return {std::move(scope), known.cells};
}

void TablePool::Tidy() {
  if (num_cells_ < kMaxPoolCells) return;
  cells_.clear();
  num_cells_ = 0;
  by_hash_.clear();
  pairs_.clear();
  minimized_.clear();
}

}  // namespace tofu
