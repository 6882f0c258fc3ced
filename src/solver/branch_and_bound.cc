#include "solver/branch_and_bound.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "solver/expand_node.h"
#include "solver/improve_choice.h"

namespace tofu {
namespace {

constexpr int kMinRootRounds = 300;
constexpr int kRootWork = 20000000;  // rounds times values
constexpr int64_t kNodesPerNeighbourhood = 32;
// Work is counted in variables, as a rough measure that does not depend on the clock.
constexpr double kWorkPerNode = 10;
constexpr double kNeighbourhoodWork = 4000;
constexpr double kFruitless = 20;  // failures in a row that double the price of a try
constexpr int kBatch = 8;
constexpr size_t kMaxOpen = 20000;

class Search {
 public:
  Search(const ChoiceProblem& core, const BranchOptions& options)
      : core_(core),
        options_(options),
        top_(std::min(options.top, core.HighestCost() + 1)) {
    SearchNode root;
    root.part = std::make_shared<SearchPart>(
        core, [](const std::vector<int>& values) { return values; }, top_);
    root.state = root.part->ascent.Start(top_);
    root.rounds = std::min(
        options.root_rounds,
        std::max(kMinRootRounds, kRootWork / std::max(root.part->num_values, 1)));
    const double cells = static_cast<double>(std::max<size_t>(root.part->num_cells, 1));
    root.rounds = static_cast<int>(
        std::clamp(options.max_work / cells, 1.0, static_cast<double>(root.rounds)));
    if (!root.state.empty) Push(std::move(root));
  }

  BranchResult Run() {
    bool go_on = true;
    while (!open_.empty() && go_on && !IsPast(options_.deadline) &&
           result_.nodes < options_.max_nodes && result_.work < options_.max_work) {
      go_on = ExpandBatch();
      if (go_on && options_.neighbourhoods) go_on = ImproveIncumbent();
    }
    result_.done = open_.empty();
    result_.bound = Bound();
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t>;

  Key ByBound(const SearchNode& node) const {
    return {node.bound(), -node.depth, -node.number};
  }
  Key ByDepth(const SearchNode& node) const {
    return {-node.depth, node.bound(), -node.number};
  }

  void Push(SearchNode node) {
    if (node.state.empty || node.bound() >= top_) return;
    node.number = next_number_++;
    auto shared = std::make_shared<SearchNode>(std::move(node));
    by_depth_.emplace(ByDepth(*shared), shared.get());
    open_.emplace(ByBound(*shared), std::move(shared));
  }

  SearchNode Pop(bool deepest) {
    const auto it =
        deepest ? open_.find(ByBound(*by_depth_.begin()->second)) : open_.begin();
    const std::shared_ptr<SearchNode> node = it->second;
    by_depth_.erase({ByDepth(*node), node.get()});
    open_.erase(it);
    return std::move(*node);
  }

  // The bound of all nodes; those being expanded count with their old bound.
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

  bool TakeBetter(const FoundChoice& choice) {
    if (choice.cost >= top_) return !stopped_;
    top_ = choice.cost;
    result_.values = choice.values;
    result_.cost = choice.cost;
    return Tell(&result_.values);
  }

  bool ExpandBatch() {
    std::vector<SearchNode> batch;
    const size_t size = std::min<size_t>(kBatch, open_.size());
    for (size_t i = 0; i < size; ++i) {
      batch.push_back(Pop(i % 2 == 1 || open_.size() > kMaxOpen));
    }
    expanding_ = kForbidden;
    for (const SearchNode& node : batch) {
      expanding_ = std::min(expanding_, node.bound());
      node_work_ += kWorkPerNode * node.part->core.num_variables();
    }
    ExpandOptions expand;
    expand.top = top_;
    expand.deadline = options_.deadline;
    expand.root_elimination_work = options_.elimination_work;
    if (size == 1 && open_.empty()) {
      // Report progress during the expansion while there is only one node.
      expand.listener = [this](const FoundChoice* choice, int64_t bound) {
        expanding_ = std::max(expanding_, bound);
        return choice == nullptr ? Tell(nullptr) : TakeBetter(*choice);
      };
    }
    std::vector<Expanded> expanded(size);
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < size; i = next++) {
        expanded[i] = ExpandNode(std::move(batch[i]), expand);
      }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min<size_t>(options_.threads, size); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
    result_.nodes += static_cast<int64_t>(size);
    for (const Expanded& of_node : expanded) {
      TakeBetter(of_node.best);
      result_.work += of_node.work;
    }
    for (Expanded& of_node : expanded) {
      if (of_node.open) Push(std::move(*of_node.open));
      for (SearchNode& child : of_node.children) Push(std::move(child));
    }
    expanding_ = kForbidden;
    while (!open_.empty() && std::get<0>(open_.rbegin()->first) >= top_) {
      const SearchNode& node = *open_.rbegin()->second;
      by_depth_.erase({ByDepth(node), &node});
      open_.erase(std::prev(open_.end()));
    }
    return Tell(nullptr);
  }

  // Spends as much work on neighbourhoods as on nodes, or less while they find nothing.
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

  const ChoiceProblem& core_;
  const BranchOptions& options_;
  uint64_t num_improvements_ = 0;
  double num_fruitless_ = 0;
  double node_work_ = 0;  // counted in variables
  double improve_work_ = 0;
  int64_t top_;
  int64_t next_number_ = 0;
  bool stopped_ = false;
  int64_t expanding_ = kForbidden;  // the least bound of the nodes being expanded
  std::map<Key, std::shared_ptr<SearchNode>> open_;
  std::set<std::pair<Key, const SearchNode*>> by_depth_;
  BranchResult result_;
};

}  // namespace

BranchResult BranchAndBound(const ChoiceProblem& core, const BranchOptions& options) {
  return Search(core, options).Run();
}

}  // namespace tofu
