#include "solver/eliminate_core.h"

#include <algorithm>
#include <map>
#include <utility>

#include "solver/eliminate.h"
#include "solver/elimination_order.h"

namespace tofu {
namespace {

constexpr int64_t kMaxTable = int64_t{1} << 20;

}  // namespace

std::optional<std::vector<int>> EliminateCore(const CoreProblem& core, int64_t top,
                                              double max_work, Deadline deadline) {
  if (!core.capacity.empty()) return std::nullopt;
  if (core.domain.empty()) return std::vector<int>();
  // Sums must not overflow, so costs above the top count as the top.
  const int64_t terms = static_cast<int64_t>(core.domain.size() + core.edges.size()) + 1;
  if (top > (int64_t{1} << 62) / terms) return std::nullopt;
  PairwiseProblem problem;
  const auto cut = [top](std::vector<int64_t> cells) {
    for (int64_t& cell : cells) cell = std::min(cell, top);
    return cells;
  };
  std::map<const std::vector<int64_t>*, SharedCells> shared;  // what equal tables become
  std::vector<std::pair<int, int>> edges;
  for (size_t v = 0; v < core.domain.size(); ++v) {
    problem.AddVariable(core.domain[v]);
    problem.unary[v] = cut(core.unary[v]);
  }
  for (const CoreProblem::Edge& edge : core.edges) {
    edges.emplace_back(edge.a, edge.b);
    const auto [it, is_new] = shared.try_emplace(&edge.cost.vector());
    if (is_new) it->second = cut(edge.cost.vector());
    problem.pairs.push_back({edge.a, edge.b, it->second});
  }
  const EliminationOrder order = MinFillOrder(core.domain, edges, kMaxTable, deadline);
  if (!order.exact || order.work > max_work) return std::nullopt;
  EliminateOptions options;
  options.max_table = kMaxTable;
  options.deadline = deadline;
  EliminateResult result = Eliminate(problem, options);
  if (result.status != EliminateStatus::kOptimal) return std::nullopt;
  return std::move(result.values);
}

}  // namespace tofu
