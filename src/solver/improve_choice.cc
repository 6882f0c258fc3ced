#include "solver/improve_choice.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "solver/branch_and_bound.h"
#include "solver/elimination/eliminate_core.h"
#include "solver/reduce_core.h"

namespace tofu {
namespace {

// Limits on the values of a neighbourhood, used in turn.
constexpr std::array<int, 4> kMaxValues = {200, 400, 800, 1600};
constexpr int kRootRounds = 150;
constexpr double kImprovementWork = 1e6;
// The most neighbours that one variable adds through memory.
constexpr int kMaxThroughMoment = 4;

// A random number below `bound`; std::uniform_int_distribution differs between libraries.
size_t Draw(std::mt19937_64* random, size_t bound) {
  return static_cast<size_t>((*random)() % bound);
}

class Neighbourhood {
 public:
  Neighbourhood(const ChoiceProblem& core, const std::vector<int>& values, uint64_t seed)
      : core_(core),
        random_(seed),
        max_values_(kMaxValues[seed % kMaxValues.size()]),
        pairs_of_(core.domain.size()),
        is_free_(core.domain.size(), 0),
        load_(core.Load(values)) {
    for (const ChoiceProblem::Pair& pair : core.pairs) {
      pairs_of_[pair.a].push_back(pair.b);
      pairs_of_[pair.b].push_back(pair.a);
    }
  }

  // Grows a neighbourhood. Returns [variable]: whether it may change.
  std::vector<char> Grow() {
    Free(static_cast<int>(Draw(&random_, core_.domain.size())));
    for (size_t next = 0; next < queue_.size() && num_values_ < max_values_; ++next) {
      const int v = queue_[next];
      std::vector<int> neighbours = pairs_of_[v];
      AddThroughMoment(v, &neighbours);
      for (size_t i = neighbours.size(); i > 1; --i) {
        std::swap(neighbours[i - 1], neighbours[Draw(&random_, i)]);
      }
      for (int u : neighbours) Free(u);
    }
    return std::move(is_free_);
  }

 private:
  void Free(int v) {
    if (is_free_[v] || num_values_ >= max_values_) return;
    is_free_[v] = 1;
    num_values_ += core_.domain[v];
    queue_.push_back(v);
  }

  // Adds variables that use memory at the moment of v that is nearest to its capacity.
  void AddThroughMoment(int v, std::vector<int>* neighbours) {
    int fullest = -1;
    for (const ChoiceProblem::Segment& segment : core_.segments[v]) {
      for (int t = segment.begin; t < segment.end; ++t) {
        if (fullest < 0 || Left(t) < Left(fullest)) fullest = t;
      }
    }
    if (fullest < 0) return;
    const size_t count = core_.domain.size();
    const size_t first = Draw(&random_, count);
    int added = 0;
    for (size_t i = 0; i < count && added < kMaxThroughMoment; ++i) {
      const int u = static_cast<int>((first + i) % count);
      for (const ChoiceProblem::Segment& segment : core_.segments[u]) {
        if (segment.begin > fullest || segment.end <= fullest) continue;
        neighbours->push_back(u);
        ++added;
      }
    }
  }

  int64_t Left(int t) const { return core_.capacity[t] - load_[t]; }

  const ChoiceProblem& core_;
  std::mt19937_64 random_;
  const int max_values_;
  std::vector<std::vector<int>> pairs_of_;
  std::vector<char> is_free_;
  std::vector<int64_t> load_;
  std::vector<int> queue_;
  int num_values_ = 0;
};

}  // namespace

std::optional<std::vector<int>> ImproveChoice(const ChoiceProblem& core,
                                              const std::vector<int>& values,
                                              int64_t cost,
                                              const ImproveOptions& options) {
  if (core.domain.empty()) return std::nullopt;
  const std::vector<char> is_free = Neighbourhood(core, values, options.seed).Grow();
  ValueMask wanted(core.domain.size());
  for (size_t v = 0; v < wanted.size(); ++v) {
    wanted[v].assign(core.domain[v], is_free[v]);
    wanted[v][values[v]] = 1;
  }
  const ReducedCore reduced = ReduceCore(core, wanted);
  if (reduced.core.infeasible || reduced.core.constant >= cost) return std::nullopt;
  if (auto eliminated =
          EliminateCore(reduced.core, cost, kImprovementWork, options.deadline)) {
    if (reduced.core.Cost(*eliminated) >= cost) return std::nullopt;
    return reduced.lift(*eliminated);
  }
  BranchOptions branch;
  branch.top = cost;
  branch.max_nodes = options.max_nodes;
  branch.root_rounds = kRootRounds;
  branch.neighbourhoods = false;
  branch.deadline = options.deadline;
  const BranchResult result = BranchAndBound(reduced.core, branch);
  if (result.values.empty()) return std::nullopt;
  return reduced.lift(result.values);
}

}  // namespace tofu
