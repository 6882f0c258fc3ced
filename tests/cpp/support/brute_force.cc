#include "support/brute_force.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "graph/cuts.h"
#include "passes/search/tilings/batch_dimension.h"
#include "support/cut_values.h"
#include "support/recount.h"

namespace tofu {
namespace {

constexpr int kNothingElse = -4;
constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

class BruteForce {
 public:
  BruteForce(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
             const PlanSpace& space, NodeCost cost,
             std::function<bool(const Plan&)> fits = nullptr)
      : graph_(graph),
        table_(table),
        coarse_(coarse),
        space_(space),
        cost_(std::move(cost)),
        fits_(std::move(fits)) {
    plan_.parts = space.parts;
    plan_.tensor_cuts.resize(graph.shapes.size());
    plan_.op_cuts.assign(graph.nodes.size(),
                         std::vector<int>(space.parts.size(), kWhole));
    if (space.batch_may_be_uneven && !space.may_be_whole.empty()) {
      batch_ = FindBatch(graph, table);
    }
  }

  // The least cost for each value of `peak`; empty if there are too many ways.
  std::map<int64_t, int64_t> Costs(const std::function<int64_t(const Plan&)>& peak) {
    peak_ = &peak;
    return Run() < 0 ? std::map<int64_t, int64_t>() : std::move(costs_);
  }

  // The least cost; -1 if there are too many ways to cut the tensors.
  int64_t Run() {
    size_t ways = 1;
    for (size_t c = 0; c < coarse_.tensors.size(); ++c) {
      const Shape& shape = coarse_.tensors[c].shape;
      std::vector<int> all(shape.size());
      std::iota(all.begin(), all.end(), 0);
      choices_.push_back(Choices(
          shape, all, MayBeWhole(c), BatchOf(batch_.tensors, coarse_.tensors[c].entries),
          coarse_.tensors[c].may_wait ? kTermsOfSum : kNothingElse));
      ways *= choices_.back().size();
      if (ways > space_.max_ways) return -1;
    }
    Tensor(0);
    return best_;
  }

 private:
  bool MayBeWhole(size_t tensor_class) const {
    return !space_.may_be_whole.empty() && space_.may_be_whole[tensor_class];
  }

  // The batch of a class that has one anywhere.
  static int BatchOf(const std::vector<int>& batch, const std::vector<int>& members) {
    int found = kNothingElse;
    for (int member : members) {
      if (!batch.empty() && batch[member] >= 0) found = batch[member];
    }
    return found;
  }

  // All cuts over all steps, by trying every number, and the other cut, at every step.
  std::vector<Cuts> Choices(const Shape& extents, const std::vector<int>& allowed,
                            bool may_be_whole, int uneven, int other) const {
    std::vector<Cuts> found(1);
    for (int part : plan_.parts) {
      std::vector<Cuts> next;
      for (const Cuts& cuts : found) {
        const size_t before = next.size();
        // An even cut leaves no part more than a quarter above the mean.
        for (const bool is_even : {true, false}) {
          const bool is_first = next.size() == before;
          for (int d : allowed) {
            const double parts = part * PartsOf(cuts, d);
            const auto extent = static_cast<double>(extents[d]);
            if (parts > extent) continue;
            if (is_even != (std::ceil(extent / parts) * parts <= 1.25 * extent)) continue;
            if (!is_first && !is_even && d != uneven) continue;
            next.push_back(cuts);
            next.back().push_back(d);
          }
        }
        const bool is_cut = next.size() > before;
        if (other != kNothingElse) {
          next.push_back(cuts);
          next.back().push_back(other);
        }
        if (is_cut && !may_be_whole) continue;
        next.push_back(cuts);
        next.back().push_back(kWhole);
      }
      found = std::move(next);
    }
    return found;
  }

  int PartsOf(const Cuts& cuts, int cut) const {
    int parts = 1;
    for (size_t step = 0; step < cuts.size(); ++step) {
      if (cuts[step] == cut) parts *= plan_.parts[step];
    }
    return parts;
  }

  void Tensor(size_t c) {
    if (c < coarse_.tensors.size()) {
      for (const Cuts& cuts : choices_[c]) {
        for (int entry : coarse_.tensors[c].entries) plan_.tensor_cuts[entry] = cuts;
        Tensor(c + 1);
      }
      return;
    }
    if (fits_ && !fits_(plan_)) return;
    if (peak_ != nullptr)
      best_ = costs_.try_emplace((*peak_)(plan_), kUnknown).first->second;
    int64_t sum = 0;
    for (int node = 0; node < graph_.num_nodes() && sum < best_; ++node) {
      if (!graph_.nodes[node].is_variable()) sum += Operator(node);
    }
    best_ = std::min(best_, sum);
    if (peak_ != nullptr) costs_[(*peak_)(plan_)] = best_;
  }

  int64_t Operator(int node) {
    const StrategyRow* row = table_.row(node);
    Shape extents;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      extents.push_back(VariableExtent(graph_, *row, node, v));
    }
    const std::vector<int> allowed =
        row == nullptr ? std::vector<int>() : row->splittable;
    const OpClass& op = coarse_.operators[coarse_.op_class[node]];
    const bool may_be_whole = row != nullptr && !row->random &&
                              (space_.operators_may_be_whole || op.adds_terms ||
                               (!space_.may_be_whole.empty() && row->light));
    std::vector<Cuts> choices =
        Choices(extents, allowed, may_be_whole, BatchOf(batch_.operators, op.nodes),
                op.adds_terms ? row->terms : kNothingElse);
    if (op.elementwise && (space_.operators_may_be_whole || !row->random)) {
      // Only an update must be split like its tensors. Other operators may; they are
      // whole if their tensors are.
      if (space_.operators_may_be_whole || IsUpdate(node)) choices.clear();
      choices.push_back(LikeTensors(*row, coarse_.tensors[op.follows].entries[0]));
    }
    int64_t best = kUnknown;
    for (const Cuts& cuts : choices) {
      plan_.op_cuts[node] = cuts;
      best = std::min(best, cost_(plan_, node));
    }
    return best;
  }

  bool IsUpdate(int node) const {
    for (size_t h = 0; h < graph_.heads.size(); ++h) {
      const std::string& role = graph_.head_roles[h];
      if (graph_.heads[h].node == node && role.rfind("update:", 0) == 0) return true;
    }
    return false;
  }

  // The variable of each dimension that a tensor's steps cut.
  Cuts LikeTensors(const StrategyRow& row, int entry) const {
    Cuts cuts;
    for (int dim : plan_.tensor_cuts[entry]) {
      cuts.push_back(dim == kWhole        ? kWhole
                     : dim == kTermsOfSum ? row.terms
                                          : row.outputs[0].dims[dim].lo.terms[0].var);
    }
    return cuts;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const PlanSpace& space_;
  const NodeCost cost_;
  const std::function<bool(const Plan&)> fits_;
  BatchDimensions batch_;
  std::vector<std::vector<Cuts>> choices_;
  Plan plan_;
  int64_t best_ = kUnknown;
  const std::function<int64_t(const Plan&)>* peak_ = nullptr;  // null: no frontier
  std::map<int64_t, int64_t> costs_;                           // by peak
};

}  // namespace

int64_t BruteForceBytes(const Graph& graph, const StrategyTable& table,
                        const CoarseGraph& coarse, const PlanSpace& space,
                        const std::function<bool(const Plan&)>& fits) {
  const std::vector<bool> read = ReadTensors(graph);
  const NodeCost bytes = [&](const Plan& plan, int node) {
    return RecountNode(graph, table, plan, read, node);
  };
  return BruteForce(graph, table, coarse, space, bytes, fits).Run();
}

int64_t BruteForceCost(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const PlanSpace& space,
                       const NodeCost& cost) {
  return BruteForce(graph, table, coarse, space, cost).Run();
}

std::map<int64_t, int64_t> BruteForceFrontier(
    const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
    const PlanSpace& space, const NodeCost& cost,
    const std::function<int64_t(const Plan&)>& peak) {
  BruteForce search(graph, table, coarse, space, cost);
  std::map<int64_t, int64_t> kept;
  int64_t least = kUnknown;
  for (const auto& [used, cost_at_peak] : search.Costs(peak)) {
    if (cost_at_peak >= least) continue;
    kept[used] = least = cost_at_peak;
  }
  return kept;
}

}  // namespace tofu
