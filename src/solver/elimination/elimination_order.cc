#include "solver/elimination/elimination_order.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace tofu {
namespace {

// Above this degree the fill is not counted: all edges are assumed to be missing.
// Such a variable comes late anyway.
constexpr size_t kMaxCountedDegree = 24;
constexpr int kPopsPerLook = 64;  // pops of the queue between checks of the clock

class Orderer {
 public:
  Orderer(const std::vector<int>& domain, const std::vector<std::pair<int, int>>& edges,
          int64_t max_table, Deadline deadline)
      : domain_(domain),
        deadline_(deadline),
        max_table_(static_cast<double>(max_table)),
        neighbors_(domain.size()),
        done_(domain.size(), false) {
    for (const auto& [a, b] : edges) {
      neighbors_[a].push_back(b);
      neighbors_[b].push_back(a);
    }
    for (std::vector<int>& list : neighbors_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  EliminationOrder Run() {
    for (size_t v = 0; v < domain_.size(); ++v) Push(static_cast<int>(v));
    for (int popped = 1; !queue_.empty(); ++popped) {
      if (popped % kPopsPerLook == 0 && IsPast(deadline_)) return Rest();
      const Key key = queue_.top();
      queue_.pop();
      const int v = std::get<2>(key);
      if (done_[v]) continue;
      if (MakeKey(v) > key) {  // stale: it has become more expensive
        Push(v);
      } else {
        Eliminate(v);
      }
    }
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int64_t, double, int>;  // (fill, cells, variable)

  bool Connected(int a, int b) const {
    return std::binary_search(neighbors_[a].begin(), neighbors_[a].end(), b);
  }

  double Cells(int v) const {
    double cells = 1;
    for (int u : neighbors_[v]) cells *= domain_[u];
    return cells;
  }

  Key MakeKey(int v) const {
    const std::vector<int>& list = neighbors_[v];
    int64_t fill = static_cast<int64_t>(list.size() * list.size());
    if (list.size() <= kMaxCountedDegree) {
      fill = 0;
      for (size_t i = 0; i < list.size(); ++i) {
        for (size_t j = i + 1; j < list.size(); ++j) {
          if (!Connected(list[i], list[j])) ++fill;
        }
      }
    }
    return {fill, Cells(v), v};
  }

  EliminationOrder Rest() {
    for (size_t v = 0; v < domain_.size(); ++v) {
      if (!done_[v]) result_.order.push_back(static_cast<int>(v));
    }
    result_.exact = false;
    return std::move(result_);
  }

  void Push(int v) { queue_.push(MakeKey(v)); }

  void Connect(int a, int b) {
    std::vector<int>& list = neighbors_[a];
    const auto it = std::lower_bound(list.begin(), list.end(), b);
    if (it == list.end() || *it != b) list.insert(it, b);
  }

  void Eliminate(int v) {
    done_[v] = true;
    result_.order.push_back(v);
    const double cells = Cells(v);
    const bool wide = cells > max_table_;
    result_.exact = result_.exact && !wide;
    result_.work += std::min(cells, max_table_) * domain_[v];
    const std::vector<int> list = std::move(neighbors_[v]);
    for (int u : list) {
      std::vector<int>& of_u = neighbors_[u];
      of_u.erase(std::lower_bound(of_u.begin(), of_u.end(), v));
    }
    for (size_t i = 0; !wide && i < list.size(); ++i) {
      for (size_t j = i + 1; j < list.size(); ++j) {
        Connect(list[i], list[j]);
        Connect(list[j], list[i]);
      }
    }
    for (int u : list) Push(u);
  }

  const std::vector<int>& domain_;
  const Deadline deadline_;
  const double max_table_;
  std::vector<std::vector<int>> neighbors_;  // sorted, those not yet eliminated
  std::vector<bool> done_;
  std::priority_queue<Key, std::vector<Key>, std::greater<Key>> queue_;
  EliminationOrder result_;
};

}  // namespace

EliminationOrder MinFillOrder(const std::vector<int>& domain,
                              const std::vector<std::pair<int, int>>& edges,
                              int64_t max_table, Deadline deadline) {
  return Orderer(domain, edges, max_table, deadline).Run();
}

}  // namespace tofu
