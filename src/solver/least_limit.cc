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

LimitedProblem Feasibility(const LimitedProblem& problem) {
  LimitedProblem result;
  result.uses = problem.uses;
  result.costs.domain = problem.costs.domain;
  for (const std::vector<int64_t>& unary : problem.costs.unary) {
    result.costs.unary.push_back(OnlyForbidden(unary));
  }
  std::map<const std::vector<int64_t>*, SharedCells> known;
  for (const PairwiseProblem::Pair& pair : problem.costs.pairs) {
    const auto [it, is_new] = known.try_emplace(&pair.cost.vector());
    if (is_new) it->second = OnlyForbidden(pair.cost.vector());
    result.costs.pairs.push_back({pair.a, pair.b, it->second});
  }
  return result;
}

// Adds the first moment at which the values use most, and what is alive then.
void AddNeeds(const LimitedProblem& problem, LeastLimit* result) {
  std::map<int64_t, int64_t> change;
  for (const LimitedProblem::Use& use : problem.uses) {
    if (use.begin >= use.end) continue;
    change[use.begin] += use.bytes[result->values[use.variable]];
    change[use.end] -= use.bytes[result->values[use.variable]];
  }
  int64_t now = 0;
  for (const auto& [moment, bytes] : change) {
    now += bytes;
    if (now != result->least) continue;
    result->moment = moment;
    break;
  }
  std::map<int, int64_t> bytes_of;
  for (const LimitedProblem::Use& use : problem.uses) {
    if (use.begin > result->moment || use.end <= result->moment) continue;
    bytes_of[use.variable] += use.bytes[result->values[use.variable]];
  }
  for (const auto& [v, bytes] : bytes_of) {
    if (bytes > 0) result->needs.push_back({v, bytes});
  }
  std::stable_sort(result->needs.begin(), result->needs.end(),
                   [](const LeastLimit::Need& a, const LeastLimit::Need& b) {
                     return a.bytes > b.bytes;
                   });
}

}  // namespace

LeastLimit FindLeastLimit(const LimitedProblem& problem, Deadline deadline, int threads) {
  LimitedProblem question = Feasibility(problem);
  SolveOptions options;
  options.deadline = deadline;
  options.threads = threads;
  LeastLimit result;
  question.limit = kUnlimited;
  while (result.bound < result.least) {
    const SolveResult answer = Solve(question, options);
    if (!answer.values.empty() || question.costs.domain.empty()) {
      result.values = answer.values;
      result.least = problem.PeakBytes(result.values);
    } else if (answer.status == SolveStatus::kInfeasible) {
      if (question.limit == kUnlimited) {
        result.exists = false;
        return result;
      }
      result.bound = question.limit + 1;
    } else {
      break;  // time is up
    }
    question.limit = result.bound + (result.least - result.bound) / 2;
    if (question.limit == result.least) question.limit = result.least - 1;
  }
  if (result.least < kUnlimited) AddNeeds(problem, &result);
  return result;
}

}  // namespace tofu
