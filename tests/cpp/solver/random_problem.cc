#include "solver/random_problem.h"

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

namespace tofu {
namespace {

constexpr double kMaxChoices = 20000;

class Generator {
 public:
  explicit Generator(int seed) : random_(static_cast<uint64_t>(seed)) {}

  LimitedProblem Make() {
    LimitedProblem problem;
    const int count = Draw(4, 12);
    forbidden_percent_ = Draw(0, 2) * 20;
    most_ = Draw(0, 3) == 0 ? 1 : 20;  // costs of 0 and 1: many ties
    double choices = 1;
    for (int v = 0; v < count; ++v) {
      int size = Draw(1, 4);
      while (choices * size > kMaxChoices) --size;
      choices *= size;
      problem.costs.AddVariable(size);
      if (Draw(0, 2) > 0) problem.costs.unary[v] = Costs(size, forbidden_percent_ / 4);
    }
    problem.costs.constant = Draw(0, 5);
    AddPairs(count, &problem.costs);
    if (Draw(0, 3) > 0) AddMemory(count, &problem);
    return problem;
  }

 private:
  int Draw(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  std::vector<int64_t> Costs(int size, int forbidden_percent) {
    std::vector<int64_t> costs;
    for (int i = 0; i < size; ++i) {
      costs.push_back(Draw(1, 100) <= forbidden_percent ? kForbidden : Draw(0, most_));
    }
    return costs;
  }

  void AddPairs(int count, PairwiseProblem* costs) {
    const int shape = Draw(0, 2);
    const int width = Draw(2, 4);
    for (int v = 1; v < count; ++v) {
      if (shape == 0) AddPair(Draw(0, v - 1), v, costs);  // a tree
      if (shape == 1) {
        if (v % width != 0) AddPair(v - 1, v, costs);
        if (v >= width) AddPair(v, v - width, costs);
      }
      for (int u = 0; shape == 2 && u < v; ++u) {
        if (Draw(0, 9) < 4) AddPair(u, v, costs);
        if (Draw(0, 19) == 0) AddPair(v, u, costs);  // a second table
      }
    }
  }

  void AddPair(int a, int b, PairwiseProblem* costs) {
    const int rows = costs->domain[a];
    const int columns = costs->domain[b];
    std::vector<int64_t> cells = Costs(rows * columns, forbidden_percent_ / 2);
    if (Draw(0, 3) == 0) {  // b is a function of a, often one to one
      for (int i = 0; i < rows * columns; ++i) {
        if (i % columns != i / columns % columns) cells[i] = kForbidden;
      }
    } else if (Draw(0, 5) == 0) {  // separable
      for (int i = 0; i < rows * columns; ++i) cells[i] = i % columns + 2 * (i / columns);
    }
    costs->pairs.push_back({a, b, std::move(cells)});
  }

  void AddMemory(int count, LimitedProblem* problem) {
    int64_t most = 0;
    for (int v = 0; v < count; ++v) {
      for (int uses = Draw(0, 2); uses > 0; --uses) {
        const int begin = Draw(0, 6);
        std::vector<int64_t> bytes;
        for (int x = 0; x < problem->costs.domain[v]; ++x) bytes.push_back(Draw(0, 6));
        most += *std::max_element(bytes.begin(), bytes.end());
        problem->uses.push_back({v, begin, begin + Draw(-1, 4), std::move(bytes)});
      }
    }
    problem->limit = Draw(0, 5) == 0 ? 0 : most * Draw(20, 80) / 100;
  }

  std::mt19937_64 random_;
  int forbidden_percent_ = 0;
  int most_ = 1;
};

}  // namespace

LimitedProblem RandomLimitedProblem(int seed) { return Generator(seed).Make(); }

BruteForce TryEveryChoice(const LimitedProblem& problem) {
  BruteForce best;
  ForEachChoice(problem.costs.domain, [&](const std::vector<int>& values) {
    const int64_t cost = problem.Cost(values);
    if (cost >= kForbidden) return;
    const int64_t peak = problem.PeakBytes(values);
    best.least_limit = std::min(best.least_limit, peak);
    if (peak <= problem.limit) best.cost = std::min(best.cost, cost);
  });
  return best;
}

std::string Describe(const LimitedProblem& problem) {
  std::ostringstream text;
  const auto print = [&text](const std::vector<int64_t>& numbers) {
    for (int64_t number : numbers) {
      text << ' ';
      number >= kForbidden ? text << '-' : text << number;
    }
    text << '\n';
  };
  const PairwiseProblem& costs = problem.costs;
  for (size_t v = 0; v < costs.domain.size(); ++v) {
    text << "variable " << v << " of " << costs.domain[v] << ":";
    print(costs.unary[v]);
  }
  for (const PairwiseProblem::Pair& pair : costs.pairs) {
    text << "pair " << pair.a << ' ' << pair.b << ":";
    print(pair.cost.vector());
  }
  for (const LimitedProblem::Use& use : problem.uses) {
    text << "use " << use.variable << " from " << use.begin << " to " << use.end << ":";
    print(use.bytes.vector());
  }
  text << "limit " << problem.limit << '\n';
  return text.str();
}

}  // namespace tofu
