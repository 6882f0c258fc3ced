#include "solver/problem/sum_pairs.h"

#include <algorithm>

namespace tofu {
namespace {

SharedCells Directed(const SharedCells& cost, size_t columns, bool is_turned) {
  const bool fits = std::all_of(cost.begin(), cost.end(),
                                [](int64_t cell) { return cell <= kForbidden; });
  if (fits && !is_turned) return cost;
  const size_t rows = cost.size() / columns;
  std::vector<int64_t> cells(cost.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t cell = is_turned ? (i % columns) * rows + i / columns : i;
    cells[cell] = std::min(cost[i], kForbidden);
  }
  return cells;
}

}  // namespace

void PairSums::Add(int a, int b, const SharedCells& cost) {
  const bool is_turned = a > b;
  auto& [given, cells] = known_[{&cost.vector(), core_.domain[b], is_turned}];
  if (given.empty()) {
    given = cost;  // keeps the address in use
    cells = Directed(cost, static_cast<size_t>(core_.domain[b]), is_turned);
  }
  const auto [it, is_new] = pair_of_.emplace(std::minmax(a, b), core_.pairs.size());
  if (is_new) {
    core_.pairs.push_back({std::min(a, b), std::max(a, b), cells});
    return;
  }
  std::vector<int64_t> sum = core_.pairs[it->second].cost.vector();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = SaturatingAdd(sum[i], cells[i]);
  core_.pairs[it->second].cost = std::move(sum);
}

}  // namespace tofu
