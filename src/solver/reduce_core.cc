#include "solver/reduce_core.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "solver/problem/moments.h"
#include "solver/worklist.h"

namespace tofu {
namespace {

using Pair = ChoiceProblem::Pair;
using Segment = ChoiceProblem::Segment;

// The most cells of a table that eliminating a variable of low degree may leave, and the
// most comparisons to find a variable's dominated values.
constexpr int64_t kMaxNewTable = int64_t{1} << 14;
constexpr int64_t kMaxComparisons = int64_t{1} << 22;

// A variable that has been eliminated, and the table that recovers its value.
struct Gone {
  // A variable that was left, and the values that it had then, in the given core.
  struct Neighbour {
    int v = -1;
    std::vector<int> values;

    size_t Place(const std::vector<int>& chosen) const {
      if (v < 0) return 0;
      return static_cast<size_t>(
          std::lower_bound(values.begin(), values.end(), chosen[v]) - values.begin());
    }
  };

  int v = 0;
  std::vector<int> values;  // v's values then, in the given core
  Neighbour u;              // u and w determine v's value
  Neighbour w;
  std::vector<int> value;  // [place of u's value * w's number + place of w's]: v's place
};

class Reducer {
 public:
  Reducer(ChoiceProblem core, const ValueMask& wanted, TableMemo* memo)
      : core_(std::move(core)),
        values_(core_.domain.size()),
        pairs_of_(core_.domain.size()),
        is_gone_(core_.domain.size(), 0),
        moments_(core_.capacity.size()),
        unsupported_(core_.domain.size()),
        single_(core_.domain.size()),
        dominated_(core_.domain.size()),
        low_degree_(core_.domain.size()),
        separable_(core_.pairs.size()),
        functions_(core_.pairs.size()),
        memo_(*memo) {
    std::iota(moments_.begin(), moments_.end(), 0);
    for (size_t v = 0; v < values_.size(); ++v) {
      values_[v].resize(core_.domain[v]);
      std::iota(values_[v].begin(), values_[v].end(), 0);
    }
    for (size_t e = 0; e < core_.pairs.size(); ++e) {
      core_.pairs[e].cost = memo_.Unify(core_.pairs[e].cost);
      pairs_of_[core_.pairs[e].a].push_back(static_cast<int>(e));
      pairs_of_[core_.pairs[e].b].push_back(static_cast<int>(e));
    }
    for (size_t v = 0; v < wanted.size(); ++v) Keep(static_cast<int>(v), wanted[v]);
  }

  ReducedCore Run() {
    bool changed = !core_.infeasible;
    while (changed && !core_.infeasible) {
      changed = Propagate();
      if (core_.infeasible) break;
      changed |= DropSeparable();
      changed |= MergeFunctions();
      changed |= RemoveDominated();
      changed |= EliminateLowDegrees();
      if (!memo_.Tidy()) continue;
      for (Pair& pair : core_.pairs) {
        if (!pair.cost.empty()) pair.cost = memo_.Unify(pair.cost);
      }
    }
    if (core_.infeasible) return {std::move(core_), nullptr, {}};
    return Compact();
  }

 private:
  int count() const { return static_cast<int>(core_.domain.size()); }

  const Pair& PairAt(int e) const { return core_.pairs[e]; }
  int Other(int e, int v) const { return PairAt(e).a == v ? PairAt(e).b : PairAt(e).a; }

  // The cost of pair e if v has value x and its other end has value y.
  int64_t Cell(int e, int v, int x, int y) const {
    const Pair& pair = PairAt(e);
    const size_t width = static_cast<size_t>(core_.domain[pair.b]);
    return pair.a == v ? pair.cost[x * width + y] : pair.cost[y * width + x];
  }

  TableEnd End(int e, int v) const {
    const bool is_first = PairAt(e).a == v;
    return {&PairAt(e).cost, is_first, core_.domain[v], core_.domain[Other(e, v)]};
  }

  std::vector<TableEnd> Ends(int v) const {
    std::vector<TableEnd> ends;
    for (int e : pairs_of_[v]) ends.push_back(End(e, v));
    return ends;
  }

  // Removes the values of v whose flag is not set.
  bool Keep(int v, const std::vector<char>& keep) {
    const int size = core_.domain[v];
    std::vector<int> left;
    for (int x = 0; x < size; ++x) {
      if (keep[x]) left.push_back(x);
    }
    if (left.empty()) core_.infeasible = true;
    if (left.empty() || static_cast<int>(left.size()) == size) return false;
    const auto shrink = [&left](auto* list) {
      for (size_t i = 0; i < left.size(); ++i) (*list)[i] = (*list)[left[i]];
      list->resize(left.size());
    };
    shrink(&values_[v]);
    shrink(&core_.unary[v]);
    for (Segment& segment : core_.segments[v]) shrink(&segment.bytes);
    for (int e : pairs_of_[v]) core_.pairs[e].cost = memo_.Shrink(End(e, v), keep);
    core_.domain[v] = static_cast<int>(left.size());
    Touch(v);
    for (int e : pairs_of_[v]) TouchPair(e);
    return true;
  }

  // Has the rules look at v again, after a change of its costs, uses or tables.
  void Touch(int v) {
    for (Worklist* list : {&unsupported_, &single_, &dominated_, &low_degree_}) {
      list->Add(v);
    }
  }

  void TouchPair(int e) {
    separable_.Add(e);
    functions_.Add(e);
    Touch(PairAt(e).a);
    Touch(PairAt(e).b);
  }

  void Detach(int e) {
    for (int v : {PairAt(e).a, PairAt(e).b}) {
      std::vector<int>& list = pairs_of_[v];
      list.erase(std::find(list.begin(), list.end(), e));  // once in each
      Touch(v);
    }
    core_.pairs[e].cost = {};
  }

  // Applies arc consistency, capacities and single values until nothing changes.
  bool Propagate() {
    bool ever = false;
    bool changed = true;
    while (changed) {
      changed = false;
      for (int v = -1; !core_.infeasible && (v = unsupported_.Take(v)) >= 0;) {
        if (!is_gone_[v] && MayLackSupport(v)) changed |= Keep(v, Supported(v));
      }
      if (core_.infeasible) return ever;
      for (int v = -1; (v = single_.Take(v)) >= 0;) {
        if (!is_gone_[v] && core_.domain[v] == 1) {
          Fix(v);
          changed = true;
        }
      }
      if (changed || !ever) Compress();
      if (core_.infeasible) return ever;
      ever |= changed;
    }
    return ever;
  }

  void Compress() {
    if (core_.capacity.empty()) return;
    for (Worklist* list : {&unsupported_, &single_, &dominated_, &low_degree_}) {
      list->AddAll();
    }
    std::vector<int> kept = CompressMoments(&core_);
    for (int& t : kept) t = moments_[t];
    moments_ = std::move(kept);
  }

  bool MayLackSupport(int v) {
    const std::vector<int64_t>& unary = core_.unary[v];
    return !core_.segments[v].empty() ||
           std::any_of(unary.begin(), unary.end(),
                       [](int64_t cost) { return cost >= kForbidden; }) ||
           std::any_of(pairs_of_[v].begin(), pairs_of_[v].end(),
                       [this](int e) { return memo_.HasForbidden(PairAt(e).cost); });
  }

  // [value]: whether each neighbour and the memory allow it.
  std::vector<char> Supported(int v) const {
    std::vector<char> keep(core_.domain[v], 1);
    for (int x = 0; x < core_.domain[v]; ++x) keep[x] = core_.unary[v][x] < kForbidden;
    for (int e : pairs_of_[v]) {
      const int u = Other(e, v);
      for (int x = 0; x < core_.domain[v]; ++x) {
        bool has = false;
        for (int y = 0; y < core_.domain[u] && !has; ++y) {
          has = Cell(e, v, x, y) < kForbidden;
        }
        keep[x] = keep[x] && has;
      }
    }
    for (const Segment& segment : core_.segments[v]) {
      const int64_t least = *std::min_element(core_.capacity.begin() + segment.begin,
                                              core_.capacity.begin() + segment.end);
      for (int x = 0; x < core_.domain[v]; ++x) {
        keep[x] = keep[x] && segment.bytes[x] <= least;
      }
    }
    return keep;
  }

  void Fix(int v) {
    core_.constant = SaturatingAdd(core_.constant, core_.unary[v][0]);
    for (int e : std::vector<int>(pairs_of_[v])) {
      const int u = Other(e, v);
      for (int y = 0; y < core_.domain[u]; ++y) {
        core_.unary[u][y] = SaturatingAdd(core_.unary[u][y], Cell(e, v, 0, y));
      }
      Detach(e);
    }
    is_gone_[v] = 1;
    Gone& gone = gone_.emplace_back();
    gone.v = v;
    gone.values = values_[v];
    gone.value = {0};
  }

  bool DropSeparable() {
    bool changed = false;
    for (int e = -1; (e = separable_.Take(e)) >= 0;) {
      const Pair& pair = core_.pairs[e];
      if (pair.cost.empty() || !IsSeparable(pair)) continue;
      const int width = core_.domain[pair.b];
      // Subtract the least row first, so no cost becomes negative.
      int least = 0;
      for (int x = 1; x < core_.domain[pair.a]; ++x) {
        if (pair.cost[static_cast<size_t>(x) * width] <
            pair.cost[static_cast<size_t>(least) * width]) {
          least = x;
        }
      }
      const size_t base = static_cast<size_t>(least) * width;
      for (int x = 0; x < core_.domain[pair.a]; ++x) {
        int64_t& sum = core_.unary[pair.a][x];
        sum = SaturatingAdd(sum,
                            pair.cost[static_cast<size_t>(x) * width] - pair.cost[base]);
      }
      for (int y = 0; y < width; ++y) {
        core_.unary[pair.b][y] =
            SaturatingAdd(core_.unary[pair.b][y], pair.cost[base + y]);
      }
      Detach(e);
      changed = true;
    }
    return changed;
  }

  bool IsSeparable(const Pair& pair) const {
    const size_t width = static_cast<size_t>(core_.domain[pair.b]);
    for (size_t i = 0; i < pair.cost.size(); ++i) {
      const size_t x = i / width;
      const size_t y = i % width;
      if (pair.cost[i] >= kForbidden) return false;
      if (pair.cost[i] - pair.cost[x * width] != pair.cost[y] - pair.cost[0])
        return false;
    }
    return true;
  }

  // For every value of u, the one value of v that pair e allows; empty if it allows more.
  std::vector<int> FunctionOf(int e, int u) const {
    const int v = Other(e, u);
    std::vector<int> values;
    for (int x = 0; x < core_.domain[u]; ++x) {
      int value = -1;
      for (int y = 0; y < core_.domain[v]; ++y) {
        if (Cell(e, u, x, y) >= kForbidden) continue;
        if (value >= 0) return {};
        value = y;
      }
      if (value < 0) return {};
      values.push_back(value);
    }
    return values;
  }

  bool MergeFunctions() {
    bool changed = false;
    for (int e = -1; (e = functions_.Take(e)) >= 0;) {
      for (bool forward : {true, false}) {
        if (core_.pairs[e].cost.empty()) continue;
        if (!memo_.HasForbidden(core_.pairs[e].cost)) continue;
        const int u = forward ? core_.pairs[e].a : core_.pairs[e].b;
        const std::vector<int> value = FunctionOf(e, u);
        if (value.empty()) continue;
        Substitute(Other(e, u), u, e, value);
        changed = true;
      }
    }
    return changed;
  }

  // Substitutes v = value[u]: u takes over the costs and uses of v.
  void Substitute(int v, int u, int tie, const std::vector<int>& value) {
    for (int x = 0; x < core_.domain[u]; ++x) {
      int64_t& sum = core_.unary[u][x];
      sum = SaturatingAdd(sum, core_.unary[v][value[x]]);
      sum = SaturatingAdd(sum, Cell(tie, u, x, value[x]));
    }
    Detach(tie);
    for (int e : std::vector<int>(pairs_of_[v])) {
      const int w = Other(e, v);
      std::vector<int64_t> cost;
      for (int x : value) {
        for (int y = 0; y < core_.domain[w]; ++y) cost.push_back(Cell(e, v, x, y));
      }
      Detach(e);
      AddPair(u, w, memo_.Unify(cost));
    }
    std::vector<Segment> mapped = std::move(core_.segments[v]);
    core_.segments[v].clear();
    for (Segment& segment : mapped) {
      std::vector<int64_t> bytes;
      for (int x : value) bytes.push_back(segment.bytes[x]);
      segment.bytes = std::move(bytes);
    }
    core_.segments[u] = SumOf(core_.segments[u], mapped, value.size());
    is_gone_[v] = 1;
    Gone& gone = gone_.emplace_back();
    gone.v = v;
    gone.values = values_[v];
    gone.u = {u, values_[u]};
    gone.value = value;
  }

  static std::vector<Segment> SumOf(const std::vector<Segment>& first,
                                    const std::vector<Segment>& second, size_t size) {
    std::vector<int> moments;
    for (const auto* segments : {&first, &second}) {
      for (const Segment& segment : *segments) {
        moments.push_back(segment.begin);
        moments.push_back(segment.end);
      }
    }
    std::sort(moments.begin(), moments.end());
    moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
    std::vector<Segment> sum;
    for (size_t i = 0; i + 1 < moments.size(); ++i) {
      sum.push_back({moments[i], moments[i + 1], std::vector<int64_t>(size, 0)});
    }
    for (const auto* segments : {&first, &second}) {
      size_t at = 0;
      for (const Segment& segment : *segments) {
        while (moments[at] < segment.begin) ++at;
        for (; moments[at] < segment.end; ++at) {
          for (size_t x = 0; x < size; ++x) sum[at].bytes[x] += segment.bytes[x];
        }
      }
    }
    return sum;
  }

  // cost[x_u * domain[w] + x_w]
  void AddPair(int u, int w, const SharedCells& cost) {
    const int a = std::min(u, w);
    const int b = std::max(u, w);
    int pair = -1;
    // A weight of an unrolled network has thousands of pairs; its neighbours have few.
    const int end = pairs_of_[a].size() <= pairs_of_[b].size() ? a : b;
    for (int e : pairs_of_[end]) {
      if (Other(e, end) == a + b - end) pair = e;
    }
    if (pair < 0) {
      pair = static_cast<int>(core_.pairs.size());
      const std::vector<int64_t> zeros(cost.size(), 0);
      core_.pairs.push_back({a, b, u == a ? cost : memo_.Unify(zeros)});
      pairs_of_[a].push_back(pair);
      pairs_of_[b].push_back(pair);
      TouchPair(pair);
      if (u == a) return;
    }
    TouchPair(pair);
    SharedCells& sum = core_.pairs[pair].cost;
    sum = memo_.Sum(sum, cost, core_.domain[b], u != a);
  }

  bool RemoveDominated() {
    bool changed = false;
    for (int v = -1; (v = dominated_.Take(v)) >= 0;) {
      if (is_gone_[v]) continue;
      const int64_t size = core_.domain[v];
      int64_t cells = 1;
      for (int e : pairs_of_[v]) cells += core_.domain[Other(e, v)];
      if (size < 2 || size * size * cells > kMaxComparisons) continue;
      if (core_.segments[v].empty()) {
        changed |= Keep(v, memo_.Undominated(core_.unary[v], Ends(v)));
      } else {
        changed |= Keep(v, UndominatedWithUses(v));
      }
    }
    return changed;
  }

  // As TableMemo::Undominated, but a value only dominates values that use no less memory.
  std::vector<char> UndominatedWithUses(int v) {
    const int size = core_.domain[v];
    std::vector<char> keep(size, 1);
    for (int x = 0; x < size; ++x) {
      for (int w = 0; w < size && keep[x]; ++w) {
        if (w != x && keep[w] && Dominates(v, w, x)) keep[x] = 0;
      }
    }
    return keep;
  }

  bool Dominates(int v, int w, int x) const {
    int64_t slack = core_.unary[v][x] - core_.unary[v][w];
    if (slack < 0 && pairs_of_[v].empty()) return false;
    for (const Segment& segment : core_.segments[v]) {
      if (segment.bytes[w] > segment.bytes[x]) return false;
    }
    for (int e : pairs_of_[v]) {
      int64_t most = -kForbidden;
      for (int y = 0; y < core_.domain[Other(e, v)]; ++y) {
        const int64_t x_cost = Cell(e, v, x, y);
        const int64_t w_cost = Cell(e, v, w, y);
        if (x_cost >= kForbidden) continue;
        if (w_cost >= kForbidden) return false;
        most = std::max(most, w_cost - x_cost);
      }
      slack -= most;
      if (slack < -kForbidden || slack > kForbidden) return false;
    }
    return slack >= 0;
  }

  bool EliminateLowDegrees() {
    bool changed = false;
    for (int v = -1; (v = low_degree_.Take(v)) >= 0;) {
      if (is_gone_[v] || !core_.segments[v].empty() || pairs_of_[v].size() > 2) continue;
      int64_t cells = 1;
      for (int e : pairs_of_[v]) cells *= core_.domain[Other(e, v)];
      if (cells > kMaxNewTable) continue;
      Eliminate(v);
      changed = true;
    }
    return changed;
  }

  void Eliminate(int v) {
    const std::vector<int> pairs = pairs_of_[v];
    const int u = pairs.empty() ? -1 : Other(pairs[0], v);
    const int w = pairs.size() < 2 ? -1 : Other(pairs[1], v);
    const LeastTable& least = memo_.Least(core_.unary[v], Ends(v));
    Gone& gone = gone_.emplace_back();
    gone.v = v;
    gone.values = values_[v];
    if (u >= 0) gone.u = {u, values_[u]};
    if (w >= 0) gone.w = {w, values_[w]};
    gone.value = least.value;
    for (int e : pairs) Detach(e);
    is_gone_[v] = 1;
    if (u < 0) {
      core_.constant = SaturatingAdd(core_.constant, least.cost[0]);
    } else if (w < 0) {
      for (int x = 0; x < core_.domain[u]; ++x) {
        core_.unary[u][x] = SaturatingAdd(core_.unary[u][x], least.cost[x]);
      }
    } else {
      AddPair(u, w, least.cost);
    }
  }

  ReducedCore Compact() {
    ReducedCore result;
    ChoiceProblem& core = result.core;
    std::vector<int> number(count(), -1);
    for (int v = 0; v < count(); ++v) {
      if (is_gone_[v]) continue;
      number[v] = core.num_variables();
      core.domain.push_back(core_.domain[v]);
      core.unary.push_back(std::move(core_.unary[v]));
      core.segments.push_back(std::move(core_.segments[v]));
    }
    for (Pair& pair : core_.pairs) {
      if (pair.cost.empty()) continue;
      core.pairs.push_back({number[pair.a], number[pair.b], std::move(pair.cost)});
    }
    core.constant = core_.constant;
    core.infeasible = core.constant >= kForbidden;
    core.capacity = std::move(core_.capacity);
    result.moments = std::move(moments_);
    // Shared, because std::function copies its captures.
    const auto gone = std::make_shared<const std::vector<Gone>>(std::move(gone_));
    result.lift = [number, values = values_, gone](const std::vector<int>& chosen) {
      std::vector<int> all(number.size(), 0);
      for (size_t v = 0; v < all.size(); ++v) {
        if (number[v] >= 0) all[v] = values[v][chosen[number[v]]];
      }
      for (auto it = gone->rbegin(); it != gone->rend(); ++it) {
        const size_t columns = it->w.v < 0 ? 1 : it->w.values.size();
        const size_t cell = it->u.Place(all) * columns + it->w.Place(all);
        all[it->v] = it->values[it->value[cell]];
      }
      return all;
    };
    return result;
  }

  ChoiceProblem core_;
  std::vector<std::vector<int>> values_;    // [variable][value]: its given number
  std::vector<std::vector<int>> pairs_of_;  // [variable]
  std::vector<char> is_gone_;               // [variable]
  std::vector<int> moments_;                // moments left, by their given numbers
  std::vector<Gone> gone_;                  // in the order of elimination
  // Items that each rule has yet to look at: variables, or pairs for the last two.
  Worklist unsupported_;
  Worklist single_;
  Worklist dominated_;
  Worklist low_degree_;
  Worklist separable_;
  Worklist functions_;
  TableMemo& memo_;
};

}  // namespace

ReducedCore ReduceCore(ChoiceProblem core, const ValueMask& wanted, TableMemo* memo) {
  TableMemo own;
  return Reducer(std::move(core), wanted, memo == nullptr ? &own : memo).Run();
}

}  // namespace tofu
