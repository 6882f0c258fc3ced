#include "solver/random_problem.h"

#include <algorithm>
#include <random>
#include <sstream>
#include <utility>

#include "solver/problem/moments.h"

namespace tofu {
namespace {

constexpr double kMaxChoices = 20000;

class Generator {
 public:
  explicit Generator(int seed) : random_(static_cast<uint64_t>(seed)) {}

  ChoiceProblem Make() {
    ChoiceProblem problem;
    const int count = Draw(4, 12);
    forbidden_percent_ = Draw(0, 2) * 20;
    most_ = Draw(0, 3) == 0 ? 1 : 20;  // costs of 0 and 1: many ties
    double choices = 1;
    for (int v = 0; v < count; ++v) {
      int size = Draw(1, 4);
      while (choices * size > kMaxChoices) --size;
      choices *= size;
      problem.AddVariable(size);
      if (Draw(0, 2) > 0) problem.unary[v] = Costs(size, forbidden_percent_ / 4);
    }
    problem.constant = Draw(0, 5);
    AddPairs(count, &problem);
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

  void AddPairs(int count, ChoiceProblem* problem) {
    const int shape = Draw(0, 2);
    const int width = Draw(2, 4);
    for (int v = 1; v < count; ++v) {
      if (shape == 0) AddPair(Draw(0, v - 1), v, problem);  // a tree
      if (shape == 1) {
        if (v % width != 0) AddPair(v - 1, v, problem);
        if (v >= width) AddPair(v, v - width, problem);
      }
      for (int u = 0; shape == 2 && u < v; ++u) {
        if (Draw(0, 9) < 4) AddPair(u, v, problem);
        if (Draw(0, 19) == 0) AddPair(v, u, problem);  // a second table
      }
    }
  }

  void AddPair(int a, int b, ChoiceProblem* problem) {
    const int rows = problem->domain[a];
    const int columns = problem->domain[b];
    std::vector<int64_t> cells = Costs(rows * columns, forbidden_percent_ / 2);
    if (Draw(0, 3) == 0) {  // b is a function of a, often one to one
      for (int i = 0; i < rows * columns; ++i) {
        if (i % columns != i / columns % columns) cells[i] = kForbidden;
      }
    } else if (Draw(0, 5) == 0) {  // separable
      for (int i = 0; i < rows * columns; ++i) cells[i] = i % columns + 2 * (i / columns);
    }
    problem->pairs.push_back({a, b, std::move(cells)});
  }

  void AddMemory(int count, ChoiceProblem* problem) {
    MemoryProfile profile(problem->domain);
    int64_t most = 0;
    for (int v = 0; v < count; ++v) {
      for (int uses = Draw(0, 2); uses > 0; --uses) {
        const int begin = Draw(0, 6);
        std::vector<int64_t> bytes;
        for (int x = 0; x < problem->domain[v]; ++x) bytes.push_back(Draw(0, 6));
        most += *std::max_element(bytes.begin(), bytes.end());
        const int end = begin + Draw(-1, 4);
        if (begin < end) profile.Add(v, begin, end, bytes);
      }
    }
    const int64_t limit = Draw(0, 5) == 0 ? 0 : most * Draw(20, 80) / 100;
    profile.Write(limit, problem);
  }

  std::mt19937_64 random_;
  int forbidden_percent_ = 0;
  int most_ = 1;
};

}  // namespace

ChoiceProblem RandomProblem(int seed) { return Generator(seed).Make(); }

BruteForce TryEveryChoice(const ChoiceProblem& problem) {
  BruteForce best;
  ForEachChoice(problem.domain, [&](const std::vector<int>& values) {
    const int64_t cost = problem.Cost(values);
    if (cost >= kForbidden) return;
    const int64_t peak = problem.PeakBytes(values);
    best.least_limit = std::min(best.least_limit, peak);
    if (peak <= problem.Limit()) best.cost = std::min(best.cost, cost);
  });
  return best;
}

std::string Describe(const ChoiceProblem& problem) {
  std::ostringstream text;
  const auto print = [&text](const std::vector<int64_t>& numbers) {
    for (int64_t number : numbers) {
      text << ' ';
      number >= kForbidden ? text << '-' : text << number;
    }
    text << '\n';
  };
  for (size_t v = 0; v < problem.domain.size(); ++v) {
    text << "variable " << v << " of " << problem.domain[v] << ":";
    print(problem.unary[v]);
    for (const ChoiceProblem::Segment& segment : problem.segments[v]) {
      text << "  uses from " << segment.begin << " to " << segment.end << ":";
      print(segment.bytes);
    }
  }
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    text << "pair " << pair.a << ' ' << pair.b << ":";
    print(pair.cost.vector());
  }
  text << "limit " << problem.Limit() << '\n';
  return text.str();
}

}  // namespace tofu
