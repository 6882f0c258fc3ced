#include "solver/elimination/eliminate_core.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tofu {
namespace {

constexpr int64_t kMaxTable = int64_t{1} << 20;
// The most work of an order over the limit: most of its tables equal earlier ones.
constexpr double kMaxRepetition = 100;

bool HasAbove(const std::vector<int64_t>& cells, int64_t top) {
  return std::any_of(cells.begin(), cells.end(), [top](int64_t c) { return c > top; });
}

// The core with all costs lowered to at most `top`. Tables without higher costs are
// shared.
ChoiceProblem AtMost(ChoiceProblem core, int64_t top) {
  for (std::vector<int64_t>& unary : core.unary) {
    for (int64_t& cell : unary) cell = std::min(cell, top);
  }
  std::map<const std::vector<int64_t>*, SharedCells> lowered;  // table -> lowered table
  for (ChoiceProblem::Pair& pair : core.pairs) {
    const auto [it, is_new] = lowered.try_emplace(&pair.cost.vector(), pair.cost);
    if (is_new && HasAbove(pair.cost.vector(), top)) {
      std::vector<int64_t> cells = pair.cost.vector();
      for (int64_t& cell : cells) cell = std::min(cell, top);
      it->second = std::move(cells);
    }
    pair.cost = it->second;
  }
  return core;
}

}  // namespace

std::optional<std::vector<int>> EliminateCore(const ChoiceProblem& core, int64_t top,
                                              double max_work, Deadline deadline,
                                              EliminationCache* cache) {
  if (!core.capacity.empty()) return std::nullopt;
  if (core.domain.empty()) return std::vector<int>();
  // Sums must not overflow, so costs above the top count as the top.
  const int64_t terms = static_cast<int64_t>(core.domain.size() + core.pairs.size()) + 1;
  if (top > (int64_t{1} << 62) / terms) return std::nullopt;
  const ChoiceProblem problem = AtMost(core, top);
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
