#include "solver/problem/merge_classes.h"

#include <unordered_map>

#include "solver/problem/moments.h"
#include "solver/problem/sum_pairs.h"

namespace tofu {
namespace {

using Pair = ChoiceProblem::Pair;

// Reduces the values of each variable, then finds its class.
class Merger {
 public:
  explicit Merger(const ChoiceProblem& problem)
      : problem_(problem),
        alive_(problem.domain.size()),
        pairs_of_(problem.domain.size()),
        class_of_(problem.domain.size(), -1),
        value_in_(problem.domain.size()) {}

  MergedClasses Run() {
    MergedClasses result;
    if (!MakeConsistent()) {
      result.core.infeasible = true;
      return result;
    }
    FindClasses();
    SumCosts(&result.core);
    AddMemory(&result.core);
    result.lift = [class_of = class_of_,
                   value_in = value_in_](const std::vector<int>& values) {
      std::vector<int> all(class_of.size());
      for (size_t v = 0; v < all.size(); ++v) {
        all[v] = value_in[v][class_of[v] < 0 ? 0 : values[class_of[v]]];
      }
      return all;
    };
    return result;
  }

 private:
  static int Other(const Pair& pair, int v) { return pair.a == v ? pair.b : pair.a; }

  int64_t Cell(const Pair& pair, int a, int b) const {
    return std::min(pair.cost[static_cast<size_t>(a) * problem_.domain[pair.b] + b],
                    kForbidden);
  }

  bool Allowed(const Pair& pair, int v, int x, int y) const {
    return (pair.a == v ? Cell(pair, x, y) : Cell(pair, y, x)) < kForbidden;
  }

  bool HasSupport(const Pair& pair, int v, int x) const {
    for (int y : alive_[Other(pair, v)]) {
      if (Allowed(pair, v, x, y)) return true;
    }
    return false;
  }

  // Removes values that forbidden costs rule out. Returns false if a variable has none
  // left.
  bool MakeConsistent() {
    std::vector<int> queue;
    std::vector<char> queued(problem_.domain.size(), 1);
    for (size_t v = 0; v < problem_.domain.size(); ++v) {
      queue.push_back(static_cast<int>(v));
      for (int x = 0; x < problem_.domain[v]; ++x) {
        if (problem_.unary[v].empty() || problem_.unary[v][x] < kForbidden) {
          alive_[v].push_back(x);
        }
      }
      if (alive_[v].empty()) return false;
    }
    for (size_t i = 0; i < problem_.pairs.size(); ++i) {
      pairs_of_[problem_.pairs[i].a].push_back(i);
      pairs_of_[problem_.pairs[i].b].push_back(i);
    }
    for (size_t next = 0; next < queue.size(); ++next) {
      const int u = queue[next];
      queued[u] = 0;
      for (size_t i : pairs_of_[u]) {
        const Pair& pair = problem_.pairs[i];
        const int v = Other(pair, u);
        std::vector<int> left;
        for (int x : alive_[v]) {
          if (HasSupport(pair, v, x)) left.push_back(x);
        }
        if (left.empty()) return false;
        if (left.size() == alive_[v].size()) continue;
        alive_[v] = std::move(left);
        if (!queued[v]) queue.push_back(v);
        queued[v] = 1;
      }
    }
    return true;
  }

  // For each of alive_[a], the position in alive_[b] of the one value that goes with it;
  // empty if the pair does not tie its variables. Every value has a partner (arc
  // consistency), so equally many values with one partner each have different ones.
  std::vector<int> Tie(const Pair& pair, int a) const {
    const int b = Other(pair, a);
    std::vector<int> partners;
    if (alive_[a].size() != alive_[b].size() || alive_[a].size() < 2) return {};
    for (int x : alive_[a]) {
      int partner = -1;
      for (size_t y = 0; y < alive_[b].size(); ++y) {
        if (!Allowed(pair, a, x, alive_[b][y])) continue;
        if (partner >= 0) return {};
        partner = static_cast<int>(y);
      }
      partners.push_back(partner);
    }
    return partners;
  }

  // Sets value_in_[v]: v's value for each value of its class, or v's only value.
  void FindClasses() {
    for (size_t first = 0; first < alive_.size(); ++first) {
      if (alive_[first].size() == 1) value_in_[first] = alive_[first];
      if (class_of_[first] >= 0 || alive_[first].size() < 2) continue;
      const int number = static_cast<int>(sizes_.size());
      class_of_[first] = number;
      value_in_[first] = alive_[first];
      sizes_.push_back(alive_[first].size());
      std::vector<int> stack = {static_cast<int>(first)};
      while (!stack.empty()) {
        const int v = stack.back();
        stack.pop_back();
        for (size_t i : pairs_of_[v]) Follow(problem_.pairs[i], v, number, &stack);
      }
    }
  }

  void Follow(const Pair& pair, int v, int number, std::vector<int>* stack) {
    const int u = Other(pair, v);
    if (class_of_[u] >= 0) return;  // its table forbids values that do not agree
    const std::vector<int> partner = Tie(pair, v);
    if (partner.empty()) return;
    std::unordered_map<int, int> value_of;  // v's value -> u's value
    for (size_t x = 0; x < partner.size(); ++x) {
      value_of[alive_[v][x]] = alive_[u][partner[x]];
    }
    class_of_[u] = number;
    for (int x : value_in_[v]) value_in_[u].push_back(value_of[x]);
    stack->push_back(u);
  }

  void SumCosts(ChoiceProblem* core) {
    core->constant = std::min(problem_.constant, kForbidden);
    for (size_t size : sizes_) {
      core->domain.push_back(static_cast<int>(size));
      core->unary.emplace_back(size, 0);
    }
    core->segments.resize(sizes_.size());
    for (size_t v = 0; v < class_of_.size(); ++v) {
      if (problem_.unary[v].empty()) continue;
      for (size_t k = 0; k < value_in_[v].size(); ++k) {
        int64_t& sum = class_of_[v] < 0 ? core->constant : core->unary[class_of_[v]][k];
        sum = SaturatingAdd(sum, problem_.unary[v][value_in_[v][k]]);
      }
    }
    PairSums sums(core);
    for (const Pair& pair : problem_.pairs) AddPair(pair, core, &sums);
  }

  void AddPair(const Pair& pair, ChoiceProblem* core, PairSums* sums) const {
    const int a = class_of_[pair.a];
    const int b = class_of_[pair.b];
    const std::vector<int>& rows = value_in_[pair.a];
    const std::vector<int>& columns = value_in_[pair.b];
    if (a < 0 || b < 0 || a == b) {
      // The pair involves at most one class; each of its costs belongs to a value of it.
      for (size_t k = 0; k < std::max(rows.size(), columns.size()); ++k) {
        const int64_t cost = Cell(pair, rows[a < 0 ? 0 : k], columns[b < 0 ? 0 : k]);
        int64_t& sum = a < 0 && b < 0 ? core->constant : core->unary[std::max(a, b)][k];
        sum = SaturatingAdd(sum, cost);
      }
      return;
    }
    if (IsWhole(pair.a) && IsWhole(pair.b)) return sums->Add(a, b, pair.cost);
    std::vector<int64_t> cost;
    cost.reserve(rows.size() * columns.size());
    for (int x : rows) {
      for (int y : columns) cost.push_back(Cell(pair, x, y));
    }
    sums->Add(a, b, std::move(cost));
  }

  // Whether the values of v are those of its class, in their order.
  bool IsWhole(int v) const {
    const std::vector<int>& values = value_in_[v];
    return static_cast<int>(values.size()) == problem_.domain[v] &&
           std::is_sorted(values.begin(), values.end());
  }

  void AddMemory(ChoiceProblem* core) const {
    const int64_t limit = problem_.Limit();
    if (limit >= kUnlimited) return;
    MemoryProfile profile(core->domain);
    for (size_t v = 0; v < problem_.segments.size(); ++v) {
      for (const ChoiceProblem::Segment& segment : problem_.segments[v]) {
        std::vector<int64_t> bytes;
        for (int x : value_in_[v]) bytes.push_back(segment.bytes[x]);
        profile.Add(class_of_[v], segment.begin, segment.end, bytes);
      }
    }
    // A moment of less capacity counts as one at which all choices use the difference.
    for (size_t t = 0; t < problem_.capacity.size(); ++t) {
      const int64_t used = limit - problem_.capacity[t];
      if (used > 0) profile.Add(-1, t, t + 1, {used});
    }
    profile.Write(limit, core);
    CompressMoments(core);
  }

  const ChoiceProblem& problem_;
  std::vector<std::vector<int>> alive_;        // [variable]: its values, ascending
  std::vector<std::vector<size_t>> pairs_of_;  // [variable]
  std::vector<int> class_of_;                  // [variable]; -1: it has one value
  std::vector<std::vector<int>> value_in_;     // [variable][value of its class]
  std::vector<size_t> sizes_;                  // [class]: number of values
};

}  // namespace

MergedClasses MergeClasses(const ChoiceProblem& problem) { return Merger(problem).Run(); }

}  // namespace tofu
