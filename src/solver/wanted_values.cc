#include "solver/wanted_values.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "solver/dual_ascent.h"
#include "solver/raise_bound.h"

namespace tofu {
namespace {

// The problem's variables as they are: nothing is merged or reduced.
CoreProblem CoreOf(const PairwiseProblem& problem) {
  CoreProblem core;
  core.constant = std::min(problem.constant, kForbidden);
  core.domain = problem.domain;
  core.segments.resize(problem.domain.size());
  for (size_t v = 0; v < problem.domain.size(); ++v) {
    core.unary.push_back(problem.unary[v]);
    core.unary.back().resize(static_cast<size_t>(problem.domain[v]), 0);
  }
  // Equal tables share their cells, and tables of the same two variables are added up.
  std::map<std::tuple<const std::vector<int64_t>*, int, bool>, SharedCells> turned;
  std::map<std::pair<int, int>, size_t> edge_of;
  for (const PairwiseProblem::Pair& pair : problem.pairs) {
    const bool turn = pair.a > pair.b;
    const size_t rows = static_cast<size_t>(problem.domain[pair.a]);
    const size_t columns = static_cast<size_t>(problem.domain[pair.b]);
    SharedCells& cells = turned[{&pair.cost.vector(), problem.domain[pair.b], turn}];
    if (cells.empty()) {
      std::vector<int64_t> costs(pair.cost.size());
      for (size_t i = 0; i < costs.size(); ++i) {
        const size_t cell = turn ? (i % columns) * rows + i / columns : i;
        costs[cell] = std::min(pair.cost[i], kForbidden);
      }
      cells = std::move(costs);
    }
    const auto [it, is_new] =
        edge_of.emplace(std::minmax(pair.a, pair.b), core.edges.size());
    if (is_new) {
      core.edges.push_back({std::min(pair.a, pair.b), std::max(pair.a, pair.b), cells});
      continue;
    }
    std::vector<int64_t> sum = core.edges[it->second].cost.vector();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = SaturatingAdd(sum[i], cells[i]);
    core.edges[it->second].cost = std::move(sum);
  }
  return core;
}

}  // namespace

ValueMask WantedValues(const PairwiseProblem& problem, int64_t top, int rounds,
                       Deadline deadline) {
  const CoreProblem core = CoreOf(problem);
  const DualAscent ascent(core, top);
  DualState state = ascent.Start(top);
  RaiseOptions options;
  options.rounds = rounds;
  options.deadline = deadline;
  RaiseBound(
      core, ascent, options, [top](const std::vector<int>&) { return top; }, &state,
      nullptr);
  return ascent.Wanted(state);
}

}  // namespace tofu
