#include "solver/eliminate_core.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tofu {
namespace {

constexpr int64_t kMaxTable = int64_t{1} << 20;
// Most tables of large orders turn out to be equal to earlier ones, but not all.
constexpr double kMaxRepetition = 100;

bool HasAbove(const std::vector<int64_t>& cells, int64_t top) {
  return std::any_of(cells.begin(), cells.end(), [top](int64_t c) { return c > top; });
}

SharedCells AtMost(const SharedCells& cells, int64_t top) {
  if (!HasAbove(cells.vector(), top)) return cells;
  std::vector<int64_t> cut = cells.vector();
  for (int64_t& cell : cut) cell = std::min(cell, top);
  return cut;
}

}  // namespace

std::optional<std::vector<int>> EliminateCore(const CoreProblem& core, int64_t top,
                                              double max_work, Deadline deadline,
                                              EliminationCache* cache) {
  if (!core.capacity.empty()) return std::nullopt;
  if (core.domain.empty()) return std::vector<int>();
  // Sums must not overflow, so costs above the top count as the top.
  const int64_t terms = static_cast<int64_t>(core.domain.size() + core.edges.size()) + 1;
  if (top > (int64_t{1} << 62) / terms) return std::nullopt;
  PairwiseProblem problem;
  std::map<const std::vector<int64_t>*, SharedCells> shared;  // what equal tables become
  for (size_t v = 0; v < core.domain.size(); ++v) {
    problem.AddVariable(core.domain[v]);
    problem.unary[v] = core.unary[v];
    for (int64_t& cell : problem.unary[v]) cell = std::min(cell, top);
  }
  for (const CoreProblem::Edge& edge : core.edges) {
    const auto [it, is_new] = shared.try_emplace(&edge.cost.vector());
    if (is_new) it->second = AtMost(edge.cost, top);
    problem.pairs.push_back({edge.a, edge.b, it->second});
  }
  EliminationCache own;
  if (cache == nullptr) cache = &own;
  const EliminationCache::Plan& plan = cache->PlanOf(problem, kMaxTable, deadline);
  if (!plan.order.exact || plan.order.work > kMaxRepetition * max_work) {
    return std::nullopt;
  }
  EliminateOptions options;
  options.max_table = kMaxTable;
  options.max_work = max_work;
  options.deadline = deadline;
  EliminateResult result = Eliminate(problem, options, cache);
  if (result.status != EliminateStatus::kOptimal) return std::nullopt;
  return std::move(result.values);
}

}  // namespace tofu
