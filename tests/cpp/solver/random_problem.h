// Seeded random problems that can be solved by trying every choice.
#ifndef TOFU_TESTS_SOLVER_RANDOM_PROBLEM_H_
#define TOFU_TESTS_SOLVER_RANDOM_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "solver/problem/choice_problem.h"

namespace tofu {

// A problem that depends on `seed`: a tree, grid or random graph of 4 to 12 variables,
// with ties, forbidden costs, variables that determine each other, and no limit, tight
// limits or zero limits.
ChoiceProblem RandomProblem(int seed);

// Calls visit(values) for every choice.
template <typename Visit>
void ForEachChoice(const std::vector<int>& domain, Visit visit) {
  std::vector<int> values(domain.size(), 0);
  while (true) {
    visit(values);
    size_t v = 0;
    while (v < values.size() && ++values[v] == domain[v]) values[v++] = 0;
    if (v == values.size()) return;
  }
}

struct BruteForce {
  int64_t cost = kForbidden;         // kForbidden: no choice is allowed and fits
  int64_t least_limit = kUnlimited;  // kUnlimited: no choice is allowed
};

BruteForce TryEveryChoice(const ChoiceProblem& problem);

// The problem as text, for a test that fails.
std::string Describe(const ChoiceProblem& problem);

}  // namespace tofu

#endif  // TOFU_TESTS_SOLVER_RANDOM_PROBLEM_H_
