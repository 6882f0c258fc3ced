#include "solver/least_limit.h"

#include <algorithm>
#include <map>
#include <utility>

#include "solver/solve.h"

namespace tofu {
namespace {

// Sets allowed costs to 0.
std::vector<int64_t> OnlyForbidden(const std::vector<int64_t>& costs) {
  std::vector<int64_t> result;
  for (int64_t cost : costs) result.push_back(cost >= kForbidden ? kForbidden : 0);
  return result;
}

// The problem with all allowed costs set to 0.
ChoiceProblem Feasibility(ChoiceProblem problem) {
  problem.constant = 0;
  for (std::vector<int64_t>& unary : problem.unary) unary = OnlyForbidden(unary);
  std::map<const std::vector<int64_t>*, SharedCells> known;
  const std::vector<ChoiceProblem::Pair> kept = problem.pairs;  // keeps addresses in use
  for (ChoiceProblem::Pair& pair : problem.pairs) {
    const auto [it, is_new] = known.try_emplace(&pair.cost.vector());
    if (is_new) it->second = OnlyForbidden(pair.cost.vector());
    pair.cost = it->second;
  }
  return problem;
}

// Adds the first moment at which the values use most, and the variables that use it.
void AddNeeds(const ChoiceProblem& problem, LeastLimit* result) {
  const std::vector<int64_t> load = problem.Load(result->values);
  const auto fullest = std::find(load.begin(), load.end(), result->least);
  if (fullest == load.end()) return;  // nothing uses memory
  result->moment = static_cast<int>(fullest - load.begin());
  for (int v = 0; v < problem.num_variables(); ++v) {
    for (const ChoiceProblem::Segment& segment : problem.segments[v]) {
      if (segment.begin > result->moment || segment.end <= result->moment) continue;
      const int64_t bytes = segment.bytes[result->values[v]];
      if (bytes > 0) result->needs.push_back({v, bytes});
    }
  }
  std::stable_sort(result->needs.begin(), result->needs.end(),
                   [](const LeastLimit::Need& a, const LeastLimit::Need& b) {
                     return a.bytes > b.bytes;
                   });
}

}  // namespace

LeastLimit FindLeastLimit(const ChoiceProblem& problem, Deadline deadline, int threads) {
  ChoiceProblem question = Feasibility(problem);
  SolveOptions options;
  options.deadline = deadline;
  options.threads = threads;
  LeastLimit result;
  int64_t limit = kUnlimited;
  while (result.bound < result.least) {
    question.SetLimit(limit);
    const SolveResult answer = Solve(question, options);
    if (!answer.values.empty() || question.domain.empty()) {
      result.values = answer.values;
      result.least = problem.PeakBytes(result.values);
    } else if (answer.status == SolveStatus::kInfeasible) {
      if (limit == kUnlimited) {
        result.exists = false;
        return result;
      }
      result.bound = limit + 1;
    } else {
      break;  // time is up
    }
    limit = result.bound + (result.least - result.bound) / 2;
    if (limit == result.least) limit = result.least - 1;
  }
  if (result.least < kUnlimited) AddNeeds(problem, &result);
  return result;
}

}  // namespace tofu
