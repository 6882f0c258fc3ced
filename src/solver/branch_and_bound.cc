#include "solver/branch_and_bound.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "solver/dual_ascent.h"
#include "solver/eliminate_core.h"
#include "solver/improve_choice.h"
#include "solver/local_search.h"
#include "solver/raise_bound.h"
#include "solver/reduce_core.h"

namespace tofu {
namespace {

constexpr int kNodeRounds = 16;
constexpr int kReducedRounds = 60;  // of a node that was reduced: its costs start afresh
constexpr int kMinRootRounds = 300;
constexpr int kRootWork = 20000000;   // rounds times values
constexpr int kProbeRounds = 6;       // of each part that a division would leave
constexpr size_t kMaxProbes = 8;      // divisions
constexpr double kLaterStep = 0.1;    // of prices that were near the best
constexpr int kRepairEvery = 64;      // rounds
constexpr double kReduceBelow = 0.6;  // of the values
constexpr double kEliminationWork = 2e6;
constexpr int64_t kNodesPerNeighbourhood = 32;
// Work is counted in variables, as a rough measure that does not depend on the clock.
constexpr double kWorkPerNode = 10;
constexpr double kNeighbourhoodWork = 4000;
constexpr double kFruitless = 20;       // neighbourhoods in a row that double their price
constexpr int64_t kMaxCoarseness = 64;  // of the first top, compared with the present one
constexpr int kBatch = 8;
constexpr size_t kMaxOpen = 20000;

// A core that nodes share, and how its values say those of the given one.
struct Part {
  Part(CoreProblem given, Lift given_lift, int64_t top)
      : core(std::move(given)), lift(std::move(given_lift)), ascent(core, top) {
    num_values = ascent.first_value(core.num_variables());
  }

  CoreProblem core;
  Lift lift;
  DualAscent ascent;
  int num_values;
};

struct Node {
  std::shared_ptr<const Part> part;
  DualState state;
  int depth = 0;
  int rounds = kNodeRounds;
  int64_t number = 0;

  int64_t known_bound = 0;  // of the node that this one was made of

  int64_t bound() const { return std::max(known_bound, part->ascent.Bound(state)); }
};

struct Choice {
  std::vector<int> values;
  int64_t cost = kForbidden;
};

// Removes values that do not fit with the least that all others use.
void RemoveUnfit(const Part& part, DualState* state) {
  const CoreProblem& core = part.core;
  const int count = core.num_variables();
  bool changed = !core.capacity.empty();
  while (changed) {
    changed = false;
    std::vector<int64_t> room = core.capacity;
    std::vector<std::vector<int64_t>> least(count);
    for (int v = 0; v < count; ++v) {
      for (const CoreProblem::Segment& segment : core.segments[v]) {
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
        const CoreProblem::Segment& segment = core.segments[v][s];
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

// Expands one node; what several threads do at a time.
class Expansion {
 public:
  // Told of better choices, and of the node's bound meanwhile; false ends the search.
  using Listener = std::function<bool(const Choice*, int64_t bound)>;

  Expansion(Node node, int64_t top, Deadline deadline, Listener listener)
      : node_(std::move(node)),
        top_(top),
        deadline_(deadline),
        listener_(std::move(listener)) {}

  void Run() {
    while (true) {
      const Part& part = *node_.part;
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
        const std::shared_ptr<const Part> old = node_.part;
        Renew(old->core, old->lift, node_.state.prices);
        if (node_.state.empty) return;
        continue;
      }
      const int left = NumLeft();
      if (left == part.core.num_variables()) return TryOnlyChoice();
      if (left > kReduceBelow * part.num_values) {
        if (Divide(counts) || node_.state.empty) return;
      } else if (!Reduce()) {
        return;
      }
    }
  }

  const Choice& best() const { return best_; }
  std::vector<Node>& children() { return children_; }
  // Whether time ran out before the node was divided.
  bool is_open() const { return is_open_; }
  Node TakeNode() { return std::move(node_); }

 private:
  void Raise(std::vector<int>* counts) {
    const Part& part = *node_.part;
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
  }

  // Takes the values, repaired and improved, if they are better.
  void Offer(const std::vector<int>& values) {
    const Part& part = *node_.part;
    const auto better = RepairAndImprove(part.core, values, deadline_);
    if (!better) return;
    const int64_t cost = part.core.Cost(*better);
    if (cost >= top_) return;
    top_ = cost;
    best_ = {part.lift(*better), cost};
    Tell(&best_);
  }

  void Tell(const Choice* better) {
    if (!listener_ || listener_(better, node_.bound())) return;
    deadline_ = Deadline::min();
  }

  int NumLeft() const {
    const Part& part = *node_.part;
    int left = 0;
    for (int v = 0; v < part.core.num_variables(); ++v) {
      for (int x = 0; x < part.core.domain[v]; ++x) {
        left += !part.ascent.IsRemoved(node_.state, v, x);
      }
    }
    return left;
  }

  void TryOnlyChoice() {
    const Part& part = *node_.part;
    std::vector<int> values(part.core.domain.size(), 0);
    for (int v = 0; v < part.core.num_variables(); ++v) {
      while (part.ascent.IsRemoved(node_.state, v, values[v])) ++values[v];
    }
    Take(part.core, values, part.lift);
  }

  void Take(const CoreProblem& core, const std::vector<int>& values, const Lift& lift) {
    const int64_t cost = core.Cost(values);
    if (cost >= top_ || !core.Fits(values)) return;
    top_ = cost;
    best_ = {lift(values), cost};
    Tell(&best_);
  }

  // False if nothing is left to do.
  bool Reduce() {
    const std::shared_ptr<const Part> old = node_.part;
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

  // Goes on with another core, or with this one on a finer scale.
  void Renew(CoreProblem core, Lift lift, std::vector<double> prices) {
    const int old_exponent = node_.part->ascent.exponent();
    node_.known_bound = node_.bound();
    node_.part = std::make_shared<Part>(std::move(core), std::move(lift), top_);
    const DualAscent& ascent = node_.part->ascent;
    for (double& price : prices) {
      price = std::ldexp(price, ascent.exponent() - old_exponent);
    }
    node_.state = ascent.Start(top_);
    if (!node_.state.empty) ascent.SetPrices(std::move(prices), &node_.state);
  }

  // Values of one variable, in two parts.
  struct Division {
    int v = 0;
    std::vector<char> is_first;  // [value]
    double doubt = 0;            // how far the rounds were from unanimous
  };

  // False if it turned out that there is less to divide than was thought.
  bool Divide(const std::vector<int>& counts) {
    std::vector<Division> divisions = Divisions(counts);
    double best_score = -1;
    for (const Division& division : divisions) {
      Node first = Child(division, true, kProbeRounds);
      Node second = Child(division, false, kProbeRounds);
      if (IsClosed(first) || IsClosed(second)) {
        // Only the other one is left.
        children_.clear();
        const bool none = IsClosed(first) && IsClosed(second);
        node_ = std::move(IsClosed(first) ? second : first);
        node_.rounds = kNodeRounds;
        node_.state.empty = none;
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
      for (Node& child : children_) child.depth = node_.depth + 1;
    }
    return true;
  }

  bool IsClosed(const Node& node) const {
    return node.state.empty || node.bound() >= top_;
  }

  Node Child(const Division& division, bool first, int rounds) const {
    const Part& part = *node_.part;
    Node child = node_;
    child.rounds = kNodeRounds;
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

  // Those that the rounds decided least unanimously, the most doubtful first.
  std::vector<Division> Divisions(const std::vector<int>& counts) const {
    const Part& part = *node_.part;
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

  // Around the two most frequent values: each other value goes with the one whose memory
  // is priced most alike.
  Division DivisionOf(int v, const std::vector<int>& counts) const {
    const Part& part = *node_.part;
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

  Node node_;
  int64_t top_;
  Deadline deadline_;
  const Listener listener_;
  Choice best_;
  std::vector<Node> children_;
  bool is_open_ = false;
};

// No allowed choice costs more.
int64_t HighestCost(const CoreProblem& core) {
  int64_t sum = core.constant;
  const auto add = [&sum](const std::vector<int64_t>& cells) {
    int64_t highest = 0;
    for (int64_t cell : cells) {
      if (cell < kForbidden) highest = std::max(highest, cell);
    }
    sum = SaturatingAdd(sum, highest);
  };
  for (const std::vector<int64_t>& unary : core.unary) add(unary);
  for (const CoreProblem::Edge& edge : core.edges) add(edge.cost);
  return std::min(sum, kForbidden - 1);
}

class Search {
 public:
  Search(const CoreProblem& core, const BranchOptions& options)
      : core_(core),
        options_(options),
        top_(std::min(options.top, HighestCost(core) + 1)) {
    Node root;
    root.part = std::make_shared<Part>(
        core, [](const std::vector<int>& values) { return values; }, top_);
    root.state = root.part->ascent.Start(top_);
    root.rounds = std::min(
        options.root_rounds,
        std::max(kMinRootRounds, kRootWork / std::max(root.part->num_values, 1)));
    if (!root.state.empty) Push(std::move(root));
  }

  BranchResult Run() {
    bool go_on = true;
    while (!open_.empty() && go_on && !IsPast(options_.deadline) &&
           result_.nodes < options_.max_nodes) {
      go_on = ExpandBatch();
      if (go_on && options_.neighbourhoods) go_on = ImproveIncumbent();
    }
    result_.done = open_.empty();
    result_.bound = Bound();
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t>;

  Key ByBound(const Node& node) const {
    return {node.bound(), -node.depth, -node.number};
  }
  Key ByDepth(const Node& node) const {
    return {-node.depth, node.bound(), -node.number};
  }

  void Push(Node node) {
    if (node.state.empty || node.bound() >= top_) return;
    node.number = next_number_++;
    auto shared = std::make_shared<Node>(std::move(node));
    by_depth_.emplace(ByDepth(*shared), shared.get());
    open_.emplace(ByBound(*shared), std::move(shared));
  }

  Node Pop(bool deepest) {
    const auto it =
        deepest ? open_.find(ByBound(*by_depth_.begin()->second)) : open_.begin();
    const std::shared_ptr<Node> node = it->second;
    by_depth_.erase({ByDepth(*node), node.get()});
    open_.erase(it);
    return std::move(*node);
  }

  // Nodes that are being expanded count with the bound they had.
  int64_t Bound() const {
    const int64_t least = open_.empty() ? top_ : std::get<0>(open_.begin()->first);
    return std::min({top_, least, expanding_});
  }

  bool Tell(const std::vector<int>* values) {
    if (options_.on_progress && !options_.on_progress(values, std::min(Bound(), top_))) {
      stopped_ = true;
    }
    return !stopped_;
  }

  bool TakeBetter(const Choice& choice) {
    if (choice.cost >= top_) return !stopped_;
    top_ = choice.cost;
    result_.values = choice.values;
    result_.cost = choice.cost;
    return Tell(&result_.values);
  }

  bool ExpandBatch() {
    std::vector<Node> batch;
    const size_t size = std::min<size_t>(kBatch, open_.size());
    for (size_t i = 0; i < size; ++i) {
      batch.push_back(Pop(i % 2 == 1 || open_.size() > kMaxOpen));
    }
    expanding_ = kForbidden;
    for (const Node& node : batch) {
      expanding_ = std::min(expanding_, node.bound());
      node_work_ += kWorkPerNode * node.part->core.num_variables();
    }
    std::vector<std::optional<Expansion>> expansions(size);
    for (size_t i = 0; i < size; ++i) {
      Expansion::Listener listener;  // at once, while there is only the root
      if (size == 1 && open_.empty()) {
        listener = [this](const Choice* choice, int64_t bound) {
          expanding_ = std::max(expanding_, bound);
          choice == nullptr ? Tell(nullptr) : TakeBetter(*choice);
          return !stopped_;
        };
      }
      expansions[i].emplace(std::move(batch[i]), top_, options_.deadline,
                            std::move(listener));
    }
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < size; i = next++) expansions[i]->Run();
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min<size_t>(options_.threads, size); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
    result_.nodes += static_cast<int64_t>(size);
    for (const auto& expansion : expansions) TakeBetter(expansion->best());
    for (auto& expansion : expansions) {
      if (expansion->is_open()) Push(expansion->TakeNode());
    }
    for (auto& expansion : expansions) {
      for (Node& child : expansion->children()) Push(std::move(child));
    }
    expanding_ = kForbidden;
    while (!open_.empty() && std::get<0>(open_.rbegin()->first) >= top_) {
      const Node& node = *open_.rbegin()->second;
      by_depth_.erase({ByDepth(node), &node});
      open_.erase(std::prev(open_.end()));
    }
    return Tell(nullptr);
  }

  // As much work on neighbourhoods as on nodes, or less while none is better.
  bool ImproveIncumbent() {
    if (result_.values.empty() || open_.empty()) return true;
    const double size = static_cast<double>(core_.domain.size());
    while (improve_work_ < node_work_) {
      if (IsPast(options_.deadline)) return true;
      improve_work_ += (size + kNeighbourhoodWork) * (1 + num_fruitless_ / kFruitless);
      ImproveOptions improve;
      improve.seed = ++num_improvements_;
      improve.max_nodes = kNodesPerNeighbourhood;
      improve.deadline = options_.deadline;
      auto better = ImproveChoice(core_, result_.values, top_, improve);
      ++num_fruitless_;
      if (!better) continue;
      num_fruitless_ = 0;
      const int64_t cost = core_.Cost(*better);
      if (!TakeBetter({std::move(*better), cost})) return false;
    }
    return true;
  }

  const CoreProblem& core_;
  const BranchOptions& options_;
  uint64_t num_improvements_ = 0;
  double num_fruitless_ = 0;
  double node_work_ = 0;  // in variables
  double improve_work_ = 0;
  int64_t top_;
  int64_t next_number_ = 0;
  bool stopped_ = false;
  int64_t expanding_ = kForbidden;  // the least bound of the batch
  std::map<Key, std::shared_ptr<Node>> open_;
  std::set<std::pair<Key, const Node*>> by_depth_;
  BranchResult result_;
};

}  // namespace

BranchResult BranchAndBound(const CoreProblem& core, const BranchOptions& options) {
  return Search(core, options).Run();
}

}  // namespace tofu
