#include "solver/elimination/greedy.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace tofu {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class Greedy {
 public:
  explicit Greedy(const ChoiceProblem& problem)
      : problem_(problem),
        pairs_(problem.domain.size()),
        values_(problem.domain.size(), -1) {
    for (size_t i = 0; i < problem.pairs.size(); ++i) {
      pairs_[problem.pairs[i].a].push_back(i);
      pairs_[problem.pairs[i].b].push_back(i);
    }
  }

  std::vector<int> Run(const std::vector<int>& tensors) {
    for (int tensor : tensors) {
      values_[tensor] = Best(tensor, true);
      for (size_t i : pairs_[tensor]) {
        const int op = Other(problem_.pairs[i], tensor);
        if (values_[op] < 0) values_[op] = Best(op, false);
      }
    }
    // Operators that no undecided tensor touches.
    for (size_t v = 0; v < values_.size(); ++v) {
      if (values_[v] < 0) values_[v] = Best(static_cast<int>(v), false);
    }
    return std::move(values_);
  }

 private:
  static int Other(const ChoiceProblem::Pair& pair, int v) {
    return pair.a == v ? pair.b : pair.a;
  }

  // The value of `v` that costs least. If `ahead`, undecided neighbours choose as well.
  int Best(int v, bool ahead) {
    int best = 0;
    int64_t least = kNone;
    for (int value = 0; value < problem_.domain[v]; ++value) {
      const int64_t cost = CostOf(v, value, ahead);
      if (cost >= least) continue;
      least = cost;
      best = value;
    }
    return best;
  }

  int64_t CostOf(int v, int value, bool ahead) {
    int64_t cost = problem_.unary[v].empty() ? 0 : problem_.unary[v][value];
    values_[v] = value;
    for (size_t i : pairs_[v]) cost += PairCost(problem_.pairs[i], v, ahead);
    values_[v] = -1;
    return cost;
  }

  // The cost between `v`, whose value is set, and its neighbour: with the neighbour's
  // value if it is decided, otherwise with its best value.
  int64_t PairCost(const ChoiceProblem::Pair& pair, int v, bool ahead) {
    const int other = Other(pair, v);
    if (values_[other] >= 0) return Cell(pair);
    int64_t least = kNone;
    for (int value = 0; value < problem_.domain[other]; ++value) {
      if (ahead) {
        least = std::min(least, CostOf(other, value, false));
        continue;
      }
      values_[other] = value;
      least = std::min(least, Cell(pair));
      values_[other] = -1;
    }
    return least;
  }

  int64_t Cell(const ChoiceProblem::Pair& pair) const {
    return pair.cost[values_[pair.a] * problem_.domain[pair.b] + values_[pair.b]];
  }

  const ChoiceProblem& problem_;
  std::vector<std::vector<size_t>> pairs_;  // [variable]
  std::vector<int> values_;                 // [variable]: -1 while undecided
};

}  // namespace

std::vector<int> DecideGreedily(const ChoiceProblem& problem,
                                const std::vector<int>& tensors) {
  return Greedy(problem).Run(tensors);
}

}  // namespace tofu
