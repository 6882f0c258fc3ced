#include "solver/expand_node.h"

#include <cmath>

#include "solver/elimination/eliminate_core.h"
#include "solver/local_search.h"
#include "solver/raise_bound.h"
#include "solver/reduce_core.h"

namespace tofu {
namespace {

constexpr int kReducedRounds = 60;  // rounds after a reduction, which resets the ascent
constexpr int kProbeRounds = 6;     // rounds for each half of a division
constexpr size_t kMaxProbes = 8;    // divisions to probe
constexpr double kLaterStep = 0.1;  // first step of prices that are near the best already
constexpr int kRepairEvery = 64;    // rounds between two repairs
constexpr double kReduceBelow = 0.6;  // share of values left that starts a reduction
constexpr double kEliminationWork = 2e6;
constexpr int64_t kMaxCoarseness = 64;  // ratio of the scale's top to the present one

// Removes values that do not fit even if all other variables use the least they can.
void RemoveUnfit(const SearchPart& part, DualState* state) {
  const ChoiceProblem& core = part.core;
  const int count = core.num_variables();
  bool changed = !core.capacity.empty();
  while (changed) {
    changed = false;
    std::vector<int64_t> room = core.capacity;
    std::vector<std::vector<int64_t>> least(count);
    for (int v = 0; v < count; ++v) {
      for (const ChoiceProblem::Segment& segment : core.segments[v]) {
        int64_t bytes = kUnlimited;
        for (int x = 0; x < core.domain[v]; ++x) {
          if (!part.ascent.IsRemoved(*state, v, x)) {
            bytes = std::min(bytes, segment.bytes[x]);
          }
        }
        least[v].push_back(bytes);
        if (bytes == 0) continue;
        for (int t = segment.begin; t < segment.end; ++t) room[t] -= bytes;
      }
    }
    for (int64_t bytes : room) state->empty = state->empty || bytes < 0;
    if (state->empty) return;
    for (int v = 0; v < count; ++v) {
      for (size_t s = 0; s < core.segments[v].size(); ++s) {
        const ChoiceProblem::Segment& segment = core.segments[v][s];
        const int64_t most =
            *std::min_element(room.begin() + segment.begin, room.begin() + segment.end) +
            least[v][s];
        for (int x = 0; x < core.domain[v]; ++x) {
          if (segment.bytes[x] <= most || part.ascent.IsRemoved(*state, v, x)) continue;
          part.ascent.Remove(v, x, state);
          changed = true;
        }
      }
    }
  }
}

// Expands one node. Several threads may expand nodes at the same time.
class Expansion {
 public:
  Expansion(SearchNode node, const ExpandOptions& options)
      : node_(std::move(node)),
        options_(options),
        top_(options.top),
        deadline_(options.deadline) {}

  Expanded Run() {
    Work();
    Expanded result{std::move(best_), std::move(children_), std::nullopt};
    if (is_open_) result.open = std::move(node_);
    result.work = work_;
    return result;
  }

 private:
  void Work() {
    while (true) {
      const SearchPart& part = *node_.part;
      part.ascent.LowerTop(top_, &node_.state);
      RemoveUnfit(part, &node_.state);
      std::vector<int> counts(part.num_values, 0);
      if (!node_.state.empty) Raise(&counts);
      if (!node_.state.empty) RemoveUnfit(part, &node_.state);
      if (node_.state.empty || node_.bound() >= top_) return;
      if (IsPast(deadline_)) {
        is_open_ = true;
        return;
      }
      if (top_ < part.ascent.highest() / kMaxCoarseness) {
        const std::shared_ptr<const SearchPart> old = node_.part;
        Renew(old->core, old->lift, node_.state.prices);
        if (node_.state.empty) return;
        continue;
      }
      const int left = NumLeft();
      if (left == part.core.num_variables()) return TryOnlyChoice();
      if (node_.depth == 0 && !std::exchange(tried_elimination_, true) && Eliminate()) {
        return;
      }
      if (left > kReduceBelow * part.num_values) {
        if (Divide(counts) || node_.state.empty) return;
      } else if (!Reduce()) {
        return;
      }
    }
  }

  void Raise(std::vector<int>* counts) {
    const SearchPart& part = *node_.part;
    RaiseOptions options;
    options.rounds = node_.rounds;
    options.deadline = deadline_;
    if (node_.depth > 0) options.first_step = kLaterStep;
    int round = 0;
    std::vector<int> last;
    const OnChoice on_choice = [&](const std::vector<int>& values) {
      const bool repair = round++ % kRepairEvery == 0;
      if (values != last && (repair || part.core.Fits(values))) {
        last = values;
        Offer(values);
      }
      if (repair) Tell(nullptr);
      return top_;
    };
    RaiseBound(part.core, part.ascent, options, on_choice, &node_.state, counts);
    work_ += static_cast<double>(round) * static_cast<double>(part.num_cells);
  }

  // Repairs and improves the values, and keeps them if they are better.
  void Offer(const std::vector<int>& values) {
    const SearchPart& part = *node_.part;
    const auto better = RepairAndImprove(part.core, values, deadline_);
    if (!better) return;
    const int64_t cost = part.core.Cost(*better);
    if (cost >= top_) return;
    top_ = cost;
    best_ = {part.lift(*better), cost};
    Tell(&best_);
  }

  void Tell(const FoundChoice* better) {
    if (!options_.listener || options_.listener(better, node_.bound())) return;
    deadline_ = Deadline::min();
  }

  int NumLeft() const {
    const SearchPart& part = *node_.part;
    int left = 0;
    for (int v = 0; v < part.core.num_variables(); ++v) {
      for (int x = 0; x < part.core.domain[v]; ++x) {
        left += !part.ascent.IsRemoved(node_.state, v, x);
      }
    }
    return left;
  }

  void TryOnlyChoice() {
    const SearchPart& part = *node_.part;
    std::vector<int> values(part.core.domain.size(), 0);
    for (int v = 0; v < part.core.num_variables(); ++v) {
      while (part.ascent.IsRemoved(node_.state, v, values[v])) ++values[v];
    }
    Take(part.core, values, part.lift);
  }

  void Take(const ChoiceProblem& core, const std::vector<int>& values, const Lift& lift) {
    const int64_t cost = core.Cost(values);
    if (cost >= top_ || !core.Fits(values)) return;
    top_ = cost;
    best_ = {lift(values), cost};
    Tell(&best_);
  }

  // Returns false if nothing is left to do.
  bool Reduce() {
    const std::shared_ptr<const SearchPart> old = node_.part;
    ReducedCore reduced = ReduceCore(old->core, old->ascent.Wanted(node_.state));
    if (reduced.core.infeasible) return false;
    Lift lift = [old, inner = std::move(reduced.lift)](const std::vector<int>& values) {
      return old->lift(inner(values));
    };
    if (const auto values =
            EliminateCore(reduced.core, top_, kEliminationWork, deadline_)) {
      Take(reduced.core, *values, lift);
      return false;
    }
    std::vector<double> prices;
    for (int t : reduced.moments) prices.push_back(node_.state.prices[t]);
    Renew(std::move(reduced.core), std::move(lift), std::move(prices));
    node_.rounds = std::max(node_.rounds, kReducedRounds);
    return !node_.state.empty;
  }

  // Eliminates the root if its width allows that, because a network of few kinds of
  // layers is eliminated faster than its bound is closed.
  bool Eliminate() {
    const SearchPart& part = *node_.part;
    if (!part.core.capacity.empty() || options_.root_elimination_work <= 0) return false;
    const ReducedCore reduced = ReduceCore(part.core, part.ascent.Wanted(node_.state));
    if (reduced.core.infeasible) return true;
    const auto values =
        EliminateCore(reduced.core, top_, options_.root_elimination_work, deadline_);
    if (!values) return false;
    Take(reduced.core, *values,
         [&](const std::vector<int>& chosen) { return part.lift(reduced.lift(chosen)); });
    return true;
  }

  // Continues with another core, or with this one on a finer scale.
  void Renew(ChoiceProblem core, Lift lift, std::vector<double> prices) {
    const int old_exponent = node_.part->ascent.exponent();
    node_.known_bound = node_.bound();
    node_.part = std::make_shared<SearchPart>(std::move(core), std::move(lift), top_);
    const DualAscent& ascent = node_.part->ascent;
    for (double& price : prices) {
      price = std::ldexp(price, ascent.exponent() - old_exponent);
    }
    node_.state = ascent.Start(top_);
    if (!node_.state.empty) ascent.SetPrices(std::move(prices), &node_.state);
  }

  // Two parts of the values of one variable.
  struct Division {
    int v = 0;
    std::vector<char> is_first;  // [value]
    double doubt = 0;            // how far the rounds were from unanimity
  };

  // Returns false if a half turned out to be closed, so the node is smaller now.
  bool Divide(const std::vector<int>& counts) {
    std::vector<Division> divisions = Divisions(counts);
    double best_score = -1;
    for (const Division& division : divisions) {
      SearchNode first = Child(division, true, kProbeRounds);
      SearchNode second = Child(division, false, kProbeRounds);
      work_ += 2.0 * kProbeRounds * static_cast<double>(node_.part->num_cells);
      if (IsClosed(first) || IsClosed(second)) {
        // Only the other half is left.
        children_.clear();
        const bool are_both_closed = IsClosed(first) && IsClosed(second);
        node_ = std::move(IsClosed(first) ? second : first);
        node_.rounds = SearchNode().rounds;
        node_.state.empty = are_both_closed;
        return false;
      }
      const double gain_1 = first.state.constant - node_.state.constant;
      const double gain_2 = second.state.constant - node_.state.constant;
      const double score = std::max(gain_1, 1.0) * std::max(gain_2, 1.0);
      if (score <= best_score) continue;
      best_score = score;
      children_.clear();
      children_.push_back(std::move(first));
      children_.push_back(std::move(second));
      for (SearchNode& child : children_) child.depth = node_.depth + 1;
    }
    return true;
  }

  bool IsClosed(const SearchNode& node) const {
    return node.state.empty || node.bound() >= top_;
  }

  SearchNode Child(const Division& division, bool first, int rounds) const {
    const SearchPart& part = *node_.part;
    SearchNode child = node_;
    child.rounds = SearchNode().rounds;
    child.known_bound = node_.bound();
    for (size_t x = 0; x < division.is_first.size(); ++x) {
      if (static_cast<bool>(division.is_first[x]) != first) {
        part.ascent.Remove(division.v, static_cast<int>(x), &child.state);
      }
    }
    RemoveUnfit(part, &child.state);
    RaiseOptions options;
    options.rounds = rounds;
    options.first_step = kLaterStep;
    options.deadline = deadline_;
    if (!child.state.empty) {
      RaiseBound(
          part.core, part.ascent, options,
          [this](const std::vector<int>&) { return top_; }, &child.state, nullptr);
    }
    return child;
  }

  // The variables that the rounds decided least unanimously, most doubtful first.
  std::vector<Division> Divisions(const std::vector<int>& counts) const {
    const SearchPart& part = *node_.part;
    std::vector<Division> divisions;
    for (int v = 0; v < part.core.num_variables(); ++v) {
      Division division = DivisionOf(v, counts);
      if (!division.is_first.empty()) divisions.push_back(std::move(division));
    }
    std::stable_sort(
        divisions.begin(), divisions.end(),
        [](const Division& a, const Division& b) { return a.doubt > b.doubt; });
    if (divisions.size() > kMaxProbes) divisions.resize(kMaxProbes);
    return divisions;
  }

  // Divides around the two most frequent values. Every other value joins the one whose
  // memory has the most similar price.
  Division DivisionOf(int v, const std::vector<int>& counts) const {
    const SearchPart& part = *node_.part;
    const int first = part.ascent.first_value(v);
    std::vector<int> left;
    int total = 0;
    for (int x = 0; x < part.core.domain[v]; ++x) {
      if (part.ascent.IsRemoved(node_.state, v, x)) continue;
      left.push_back(x);
      total += counts[first + x];
    }
    Division division;
    if (left.size() < 2) return division;
    const auto key = [&](int x) {
      return std::pair(-counts[first + x], part.ascent.Reduced(node_.state, v, x));
    };
    std::stable_sort(left.begin(), left.end(),
                     [&](int x, int y) { return key(x) < key(y); });
    const auto distance = [&](int x, int y) {
      return std::abs(node_.state.penalty[first + x] - node_.state.penalty[first + y]);
    };
    division.v = v;
    division.is_first.assign(part.core.domain[v], 0);
    for (int x : left) {
      division.is_first[x] = distance(x, left[0]) < distance(x, left[1]);
    }
    division.is_first[left[0]] = 1;
    division.doubt = 1 - (counts[first + left[0]] + 0.0) / std::max(total, 1) +
                     1e-3 / static_cast<double>(left.size());
    return division;
  }

  SearchNode node_;
  const ExpandOptions& options_;
  int64_t top_;
  Deadline deadline_;  // lies in the past once the listener has ended the work
  FoundChoice best_;
  std::vector<SearchNode> children_;
  bool is_open_ = false;
  bool tried_elimination_ = false;
  double work_ = 0;
};

}  // namespace

Expanded ExpandNode(SearchNode node, const ExpandOptions& options) {
  return Expansion(std::move(node), options).Run();
}

}  // namespace tofu
