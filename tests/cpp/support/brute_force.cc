#include "support/brute_force.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/box.h"
#include "graph/cuts.h"
#include "graph/plan.h"
#include "support/recount.h"

namespace tofu {
namespace {

class BruteForce {
 public:
  BruteForce(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
             const std::vector<int>& parts)
      : graph_(graph), table_(table), coarse_(coarse), used_(UsedEntries(graph)) {
    plan_.parts = parts;
    plan_.tensor_cuts.resize(static_cast<size_t>(graph.num_entries()));
    plan_.op_cuts.assign(graph.nodes.size(), std::vector<int>(parts.size(), kReplicated));
  }

  // -1 when there are more than `limit` ways to cut the tensors.
  int64_t Run(size_t limit) {
    size_t ways = 1;
    for (const TensorClass& tensor : coarse_.tensors) {
      choices_.push_back(Choices(tensor.shape, true, {}));
      ways *= choices_.back().size();
      if (ways > limit) return -1;
    }
    Tensor(0);
    return best_;
  }

 private:
  // All cuts over all steps, by trying every number at every step.
  std::vector<Cuts> Choices(const Shape& extents, bool is_tensor,
                            const std::vector<int>& allowed) const {
    std::vector<std::pair<Cuts, Shape>> found = {{{}, extents}};
    for (int part : plan_.parts) {
      std::vector<std::pair<Cuts, Shape>> next;
      for (const auto& [cuts, left] : found) {
        const size_t before = next.size();
        for (size_t d = 0; d < left.size(); ++d) {
          const bool may = is_tensor || std::count(allowed.begin(), allowed.end(), d) > 0;
          if (!may || left[d] % part != 0) continue;
          next.emplace_back(cuts, left);
          next.back().first.push_back(static_cast<int>(d));
          next.back().second[d] /= part;
        }
        if (next.size() > before) continue;
        next.emplace_back(cuts, left);
        next.back().first.push_back(kReplicated);
      }
      found = std::move(next);
    }
    std::vector<Cuts> result;
    for (auto& [cuts, left] : found) result.push_back(std::move(cuts));
    return result;
  }

  void Tensor(size_t c) {
    if (c < coarse_.tensors.size()) {
      for (const Cuts& cuts : choices_[c]) {
        for (int entry : coarse_.tensors[c].entries) plan_.tensor_cuts[entry] = cuts;
        Tensor(c + 1);
      }
      return;
    }
    int64_t sum = 0;
    for (int node = 0; node < graph_.num_nodes() && sum < best_; ++node) {
      if (!graph_.nodes[node].is_variable()) sum += Operator(node);
    }
    best_ = std::min(best_, sum);
  }

  int64_t Operator(int node) {
    const StrategyRow* row = table_.row(node);
    Shape extents;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), graph_, node));
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    for (const Cuts& cuts :
         Choices(extents, false, row == nullptr ? std::vector<int>() : row->splittable)) {
      plan_.op_cuts[node] = cuts;
      best = std::min(best, RecountNode(graph_, table_, plan_, used_, node));
    }
    return best;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<bool> used_;
  std::vector<std::vector<Cuts>> choices_;
  Plan plan_;
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

int64_t BruteForceBytes(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, const std::vector<int>& parts,
                        size_t limit) {
  return BruteForce(graph, table, coarse, parts).Run(limit);
}

}  // namespace tofu
