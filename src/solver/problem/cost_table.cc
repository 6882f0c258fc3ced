#include "solver/problem/cost_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "solver/problem/row_kernels.h"

namespace tofu {
namespace {

constexpr size_t kMaxPoolCells = size_t{1} << 22;

// The number of cells between neighbouring values of each variable of `scope` in `table`;
// 0 for a variable that the table does not mention.
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

// Returns, for one operand's table, the number of cells between neighbouring values of
// every variable of the result; sets *value_stride to that of the minimised variable.
std::vector<int64_t> OperandStrides(const SumPattern& pattern,
                                    const std::vector<int>& places,
                                    int64_t* value_stride) {
  std::vector<int64_t> strides(pattern.domain.size(), 0);
  int64_t stride = 1;
  for (size_t i = places.size(); i-- > 0;) {
    const bool is_value = places[i] == SumPattern::kMinimized;
    (is_value ? *value_stride : strides[places[i]]) = stride;
    stride *= is_value ? pattern.num_values : pattern.domain[places[i]];
  }
  return strides;
}

// An operand that does not mention the result's last variable.
struct FlatOperand {
  const int64_t* cells = nullptr;
  int64_t value_stride = 0;
};

// An operand that mentions the result's last variable, copied so that the values of this
// variable are neighbours: each value of the outer variables has a row for each value
// that is minimised over.
struct RowOperand {
  std::vector<int64_t> cells;  // [outer][value][last variable]
  std::vector<int64_t> least;  // [outer][value]
};

// Computes the minimum over x_v of a sum of tables, row by row of the result. Skips
// values whose least possible sum is not below the highest cell of the row so far.
class RowMinimizer {
 public:
  RowMinimizer(const SumPattern& pattern,
               const std::vector<const std::vector<int64_t>*>& tables)
      : num_values_(static_cast<size_t>(pattern.num_values)),
        outer_(pattern.domain),
        base_(num_values_),
        key_(num_values_) {
    if (!outer_.empty()) {
      rows_ = static_cast<size_t>(outer_.back());
      outer_.pop_back();
    }
    for (size_t t = 0; t < tables.size(); ++t) {
      if (tables[t] != nullptr) Add(pattern, pattern.operands[t], *tables[t]);
    }
    rows_of_value_.resize(row_operands_.size());
  }

  std::vector<int64_t> Run() {
    size_t count = rows_;
    for (int size : outer_) count *= static_cast<size_t>(size);
    std::vector<int64_t> cells(count);
    int64_t* next = cells.data();
    std::vector<std::vector<int64_t>> strides = flat_strides_;
    strides.insert(strides.end(), row_strides_.begin(), row_strides_.end());
    ForEachAssignment(outer_, outer_.size(), strides,
                      [&](const std::vector<int64_t>& offsets) {
                        MinimizeRow(offsets, next);
                        next += rows_;
                      });
    return cells;
  }

 private:
  void Add(const SumPattern& pattern, const std::vector<int>& places,
           const std::vector<int64_t>& table) {
    int64_t value_stride = 0;
    std::vector<int64_t> strides = OperandStrides(pattern, places, &value_stride);
    const int64_t row_stride = strides.empty() ? 0 : strides.back();
    if (!strides.empty()) strides.pop_back();
    if (row_stride == 0) {
      flat_.push_back({table.data(), value_stride});
      flat_strides_.push_back(std::move(strides));
      return;
    }
    RowOperand operand;
    std::vector<int64_t> packed(outer_.size(), 0);
    std::vector<int> sizes;  // of the outer variables that the table mentions
    std::vector<int64_t> old;
    for (size_t i = 0; i < outer_.size(); ++i) {
      if (strides[i] == 0) continue;
      sizes.push_back(outer_[i]);
      old.push_back(strides[i]);
    }
    int64_t stride = pattern.num_values;  // in rows
    for (size_t i = outer_.size(); i-- > 0;) {
      if (strides[i] == 0) continue;
      packed[i] = stride;
      stride *= outer_[i];
    }
    operand.cells.reserve(table.size());
    ForEachAssignment(sizes, sizes.size(), {old}, [&](const std::vector<int64_t>& at) {
      for (size_t z = 0; z < num_values_; ++z) {
        const int64_t* from = &table[at[0] + static_cast<int64_t>(z) * value_stride];
        int64_t least = std::numeric_limits<int64_t>::max();
        for (size_t j = 0; j < rows_; ++j, from += row_stride) {
          operand.cells.push_back(*from);
          least = std::min(least, *from);
        }
        operand.least.push_back(least);
      }
    });
    row_operands_.push_back(std::move(operand));
    row_strides_.push_back(std::move(packed));
  }

  // `offsets`: of the flat operands in cells, then of the row operands in rows.
  void MinimizeRow(const std::vector<int64_t>& offsets, int64_t* best) {
    const size_t num_flat = flat_.size();
    std::fill(base_.begin(), base_.end(), 0);
    for (size_t t = 0; t < num_flat; ++t) {
      const int64_t* at = flat_[t].cells + offsets[t];
      for (size_t z = 0; z < num_values_; ++z, at += flat_[t].value_stride) {
        base_[z] += *at;
      }
    }
    key_ = base_;
    for (size_t t = 0; t < row_operands_.size(); ++t) {
      const int64_t* at = &row_operands_[t].least[offsets[num_flat + t]];
      for (size_t z = 0; z < num_values_; ++z) key_[z] += at[z];
    }
    const size_t first =
        static_cast<size_t>(std::min_element(key_.begin(), key_.end()) - key_.begin());
    std::fill(best, best + rows_, std::numeric_limits<int64_t>::max());
    int64_t highest = Lower(offsets, first, best);
    for (size_t z = 0; z < num_values_; ++z) {
      if (z != first && key_[z] < highest) highest = Lower(offsets, z, best);
    }
  }

  // Lowers best[j] to the sum for value z where that is less. Returns the highest
  // best[j].
  int64_t Lower(const std::vector<int64_t>& offsets, size_t z, int64_t* best) {
    for (size_t t = 0; t < row_operands_.size(); ++t) {
      const size_t number = static_cast<size_t>(offsets[flat_.size() + t]) + z;
      rows_of_value_[t] = &row_operands_[t].cells[number * rows_];
    }
    return LowerRow(rows_of_value_.data(), rows_of_value_.size(), base_[z], rows_, best);
  }

  const size_t num_values_;
  std::vector<int> outer_;  // domains of the result's variables except the last
  size_t rows_ = 1;         // domain of the last
  std::vector<FlatOperand> flat_;
  std::vector<std::vector<int64_t>> flat_strides_;  // [operand][outer variable]: cells
  std::vector<RowOperand> row_operands_;
  std::vector<std::vector<int64_t>> row_strides_;  // [row operand][outer variable]: rows
  std::vector<int64_t> base_;                      // [value]: sum of the flat operands
  std::vector<int64_t> key_;                       // [value]: no sum is less
  std::vector<const int64_t*> rows_of_value_;      // [row operand]
};

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
  if (known.cells == nullptr) {
    known = Intern(RowMinimizer(patterns_[pattern], tables).Run());
    work_ += static_cast<double>(known.cells->size()) * patterns_[pattern].num_values;
  }
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
