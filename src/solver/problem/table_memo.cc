#include "solver/problem/table_memo.h"

#include <algorithm>

#include "solver/problem/choice_problem.h"

namespace tofu {
namespace {

constexpr size_t kMaxMemoCells = size_t{1} << 24;

size_t HashOf(const std::vector<int64_t>& values) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL + values.size();
  for (int64_t value : values) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

int64_t Number(const SharedCells& cells) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&cells.vector()));
}

// A table row by row of the own variable, with the least and the highest of each row.
struct Rows {
  size_t width = 0;
  bool has_forbidden = false;
  std::vector<int64_t> cells;
  std::vector<int64_t> least;
  std::vector<int64_t> highest;

  explicit Rows(const TableEnd& table) : width(static_cast<size_t>(table.other)) {
    for (int x = 0; x < table.own; ++x) {
      for (int y = 0; y < table.other; ++y) cells.push_back(table.At(x, y));
      const auto begin = cells.end() - table.other;
      least.push_back(*std::min_element(begin, cells.end()));
      highest.push_back(*std::max_element(begin, cells.end()));
      has_forbidden = has_forbidden || highest.back() >= kForbidden;
    }
  }

  // A lower bound of max over y of cost(w, y) - cost(x, y).
  int64_t AtLeast(int w, int x) const {
    const int64_t by_least = least[w] - least[x];
    return has_forbidden ? by_least : std::max(by_least, highest[w] - highest[x]);
  }

  // The maximum of cost(w, y) - cost(x, y) over the y that x allows; kForbidden if w
  // forbids one of these y.
  int64_t Most(int w, int x) const {
    const int64_t* w_costs = &cells[w * width];
    const int64_t* x_costs = &cells[x * width];
    int64_t most = -kForbidden;
    for (size_t y = 0; y < width; ++y) {
      if (has_forbidden && x_costs[y] >= kForbidden) continue;
      if (has_forbidden && w_costs[y] >= kForbidden) return kForbidden;
      most = std::max(most, w_costs[y] - x_costs[y]);
    }
    return most;
  }
};

// Whether w costs no more than x, whatever the other variables choose.
bool Dominates(const std::vector<int64_t>& unary, const std::vector<Rows>& tables, int w,
               int x) {
  int64_t slack = unary[x] - unary[w];
  int64_t optimistic = slack;
  for (const Rows& table : tables) {
    optimistic -= table.AtLeast(w, x);
    if (optimistic < -kForbidden || optimistic > kForbidden) return false;
  }
  if (optimistic < 0) return false;
  for (const Rows& table : tables) {
    const int64_t most = table.Most(w, x);
    if (most >= kForbidden) return false;
    slack -= most;
    if (slack < -kForbidden || slack > kForbidden) return false;
  }
  return slack >= 0;
}

}  // namespace

size_t TableMemo::Hash::operator()(const Key& key) const { return HashOf(key); }

SharedCells TableMemo::Intern(std::vector<int64_t> cells) {
  const size_t hash = HashOf(cells);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second.vector() == cells) return it->second;
  }
  num_cells_ += cells.size();
  return by_hash_.emplace(hash, SharedCells(std::move(cells)))->second;
}

SharedCells TableMemo::Unify(const SharedCells& cells) {
  const auto [it, is_new] = unified_.try_emplace(&cells.vector());
  if (is_new) {
    given_.push_back(cells);
    num_cells_ += cells.size();
    it->second = Intern(cells.vector());
  }
  return it->second;
}

bool TableMemo::HasForbidden(const SharedCells& cells) {
  const auto [it, is_new] = has_forbidden_.try_emplace(&cells.vector());
  if (is_new) {
    it->second = std::any_of(cells.begin(), cells.end(),
                             [](int64_t cell) { return cell >= kForbidden; });
  }
  return it->second;
}

void TableMemo::Add(const TableEnd& table) {
  key_.insert(key_.end(), {Number(*table.cells), table.is_first ? 1 : 0, table.other});
}

void TableMemo::SetKey(const std::vector<int64_t>& unary,
                       const std::vector<TableEnd>& tables) {
  key_ = unary;
  for (const TableEnd& table : tables) Add(table);
}

SharedCells TableMemo::Shrink(const TableEnd& table, const std::vector<char>& keep) {
  key_.assign(keep.begin(), keep.end());
  Add(table);
  SharedCells& known = shrunk_[key_];
  if (!known.empty()) return known;
  std::vector<int64_t> cells;
  const int rows = table.is_first ? table.own : table.other;
  const int columns = table.is_first ? table.other : table.own;
  for (int i = 0; i < rows; ++i) {
    if (table.is_first && !keep[i]) continue;
    for (int j = 0; j < columns; ++j) {
      if (!table.is_first && !keep[j]) continue;
      cells.push_back((*table.cells)[static_cast<size_t>(i) * columns + j]);
    }
  }
  return known = Intern(std::move(cells));
}

SharedCells TableMemo::Sum(const SharedCells& a, const SharedCells& b, int columns,
                           bool turned) {
  key_ = {Number(a), Number(b), columns, turned ? 1 : 0};
  SharedCells& known = sums_[key_];
  if (!known.empty()) return known;
  std::vector<int64_t> cells = a.vector();
  const size_t width = static_cast<size_t>(columns);
  const size_t rows = cells.size() / width;
  for (size_t i = 0; i < cells.size(); ++i) {
    const int64_t other = b[turned ? (i % width) * rows + i / width : i];
    cells[i] = SaturatingAdd(cells[i], other);
  }
  return known = Intern(std::move(cells));
}

const LeastTable& TableMemo::Least(const std::vector<int64_t>& unary,
                                   const std::vector<TableEnd>& tables) {
  SetKey(unary, tables);
  LeastTable& known = least_[key_];
  if (!known.cost.empty()) return known;
  const int rows = tables.empty() ? 1 : tables[0].other;
  const int columns = tables.size() < 2 ? 1 : tables[1].other;
  std::vector<int64_t> least(static_cast<size_t>(rows) * columns, kForbidden);
  known.value.assign(least.size(), 0);
  for (int z = 0; z < static_cast<int>(unary.size()); ++z) {
    for (int x = 0; x < rows; ++x) {
      const int64_t of_row =
          tables.empty() ? unary[z] : SaturatingAdd(unary[z], tables[0].At(z, x));
      for (int y = 0; y < columns; ++y) {
        const size_t cell = static_cast<size_t>(x) * columns + y;
        const int64_t cost =
            tables.size() < 2 ? of_row : SaturatingAdd(of_row, tables[1].At(z, y));
        if (cost >= least[cell]) continue;
        least[cell] = cost;
        known.value[cell] = z;
      }
    }
  }
  known.cost = Intern(std::move(least));
  return known;
}

const std::vector<char>& TableMemo::Undominated(const std::vector<int64_t>& unary,
                                                const std::vector<TableEnd>& tables) {
  SetKey(unary, tables);
  std::vector<char>& keep = undominated_[key_];
  if (!keep.empty()) return keep;
  const int size = static_cast<int>(unary.size());
  const std::vector<Rows> rows(tables.begin(), tables.end());
  keep.assign(unary.size(), 1);
  for (int x = 0; x < size; ++x) {
    for (int w = 0; w < size && keep[x]; ++w) {
      if (w != x && keep[w] && Dominates(unary, rows, w, x)) keep[x] = 0;
    }
  }
  return keep;
}

bool TableMemo::Tidy() {
  if (num_cells_ < kMaxMemoCells) return false;
  *this = TableMemo();
  return true;
}

}  // namespace tofu
