#include "solver/wanted_values.h"

#include <algorithm>

#include "solver/dual_ascent.h"
#include "solver/problem/sum_pairs.h"
#include "solver/raise_bound.h"

namespace tofu {
namespace {

// The problem's variables and costs as a core: nothing is merged or reduced.
ChoiceProblem CoreOf(const ChoiceProblem& problem) {
  ChoiceProblem core;
  core.constant = std::min(problem.constant, kForbidden);
  core.domain = problem.domain;
  core.unary = problem.unary;
  core.segments.resize(problem.domain.size());
  for (size_t v = 0; v < problem.domain.size(); ++v) {
    core.unary[v].resize(static_cast<size_t>(problem.domain[v]), 0);
  }
  PairSums sums(&core);
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    sums.Add(pair.a, pair.b, pair.cost);
  }
  return core;
}

}  // namespace

ValueMask WantedValues(const ChoiceProblem& problem, int64_t top, int rounds,
                       Deadline deadline) {
  const ChoiceProblem core = CoreOf(problem);
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
