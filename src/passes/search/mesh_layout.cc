#include "passes/search/mesh_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "graph/box.h"
#include "passes/coarsen/group.h"
#include "passes/search/cost/cost_model.h"
#include "passes/search/tilings/waiting_terms.h"

namespace tofu {
namespace {

constexpr size_t kMaxStarts = 16;
// Costs to count before the local search stops: about four seconds.
constexpr size_t kMaxCosts = 40000;

// The logical dimensions that a step cuts, ascending.
using StepDimensions = std::vector<int>;
using Layout = std::vector<StepDimensions>;  // [step]

bool Has(const StepDimensions& dims, int dim) {
  return std::binary_search(dims.begin(), dims.end(), dim);
}

// Knows which layouts are possible.
class MeshSpace {
 public:
  MeshSpace(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
            const std::vector<Cuts>& fixed, const MeshOptions& options)
      : table_(table),
        coarse_(coarse),
        fixed_(fixed),
        parts_(options.parts),
        equal_tiles_(options.equal_tiles),
        dims_(FindLogicalDimensions(graph, table, coarse)),
        extents_(static_cast<size_t>(dims_.count)),
        conflicts_(static_cast<size_t>(dims_.count)),
        is_split_(static_cast<size_t>(dims_.count), false),
        bytes_(static_cast<size_t>(dims_.count), 0) {
    for (size_t c = 0; c < coarse.tensors.size(); ++c) {
      const TensorClass& tensor = coarse.tensors[c];
      Meet(dims_.tensors[c], tensor.shape);
      const int64_t bytes = NumElements(tensor.shape) *
                            DtypeBytes(graph.dtypes[tensor.entries[0]]) *
                            static_cast<int64_t>(tensor.entries.size());
      for (int dim : dims_.tensors[c]) bytes_[dim] += bytes;
    }
    for (size_t p = 0; p < coarse.operators.size(); ++p) AddOperator(graph, p);
    for (int dim = 0; dim < dims_.count; ++dim) {
      if (is_split_[dim] && conflicts_[dim].count(dim) == 0) order_.push_back(dim);
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return bytes_[a] > bytes_[b]; });
  }

  // The dimensions that a step may cut, those of the most bytes first.
  const std::vector<int>& order() const { return order_; }
  bool Conflict(int dim, const StepDimensions& others) const {
    return std::any_of(others.begin(), others.end(),
                       [&](int other) { return conflicts_[dim].count(other) > 0; });
  }

  // Whether `step`, next to the other steps that cut the dimension, can cut it evenly.
  bool CanDivide(int dim, size_t step, const Layout& layout) const {
    int parts = parts_[step];
    for (size_t other = 0; other < layout.size(); ++other) {
      if (other != step && Has(layout[other], dim)) parts *= parts_[other];
    }
    return std::all_of(extents_[dim].begin(), extents_[dim].end(), [&](int64_t extent) {
      return equal_tiles_ ? extent % parts == 0 : CutsEvenly(extent, parts);
    });
  }

  bool Fits(int dim, size_t step, const StepDimensions& chosen,
            const Layout& layout) const {
    return !Has(chosen, dim) && !Conflict(dim, chosen) && CanDivide(dim, step, layout);
  }

  // Adds all dimensions that still fit to `chosen`.
  StepDimensions Complete(StepDimensions chosen, size_t step,
                          const Layout& layout) const {
    for (int dim : order_) {
      if (!Fits(dim, step, chosen, layout)) continue;
      chosen.insert(std::upper_bound(chosen.begin(), chosen.end(), dim), dim);
    }
    return chosen;
  }

  ClassCuts CutsOf(const Layout& layout) const {
    ClassCuts cuts;
    for (const std::vector<int>& dims : dims_.tensors) {
      cuts.tensors.push_back(Along(dims, layout));
    }
    for (const std::vector<int>& vars : dims_.operators) {
      cuts.operators.push_back(Along(vars, layout));
    }
    LetSumsWait(table_, coarse_, fixed_, &cuts);
    return cuts;
  }

 private:
  // Takes note of the dimensions of one tensor or operator, and of their extents.
  void Meet(const std::vector<int>& dims, const Shape& extents) {
    for (size_t a = 0; a < dims.size(); ++a) {
      if (dims[a] < 0) continue;
      extents_[dims[a]].insert(extents[a]);
      for (size_t b = 0; b < dims.size(); ++b) {
        if (a != b && dims[b] >= 0) conflicts_[dims[a]].insert(dims[b]);
      }
    }
  }

  void AddOperator(const Graph& graph, size_t p) {
    const int node = coarse_.operators[p].nodes[0];
    const StrategyRow* row = table_.row(node);
    if (row == nullptr) return;
    Shape extents;
    for (size_t v = 0; v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), graph, node));
    }
    Meet(dims_.operators[p], extents);
    for (int dim : dims_.operators[p]) {
      if (dim >= 0) is_split_[dim] = true;
    }
  }

  Cuts Along(const std::vector<int>& dims, const Layout& layout) const {
    Cuts cuts(layout.size(), kReplicated);
    for (size_t step = 0; step < layout.size(); ++step) {
      for (size_t d = 0; d < dims.size(); ++d) {
        if (dims[d] >= 0 && Has(layout[step], dims[d])) cuts[step] = static_cast<int>(d);
      }
    }
    return cuts;
  }

  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<Cuts>& fixed_;
  const std::vector<int>& parts_;
  const bool equal_tiles_;
  const LogicalDimensions dims_;
  std::vector<std::set<int64_t>> extents_;  // [logical dimension]
  std::vector<std::set<int>> conflicts_;    // dimensions that it cannot share a step with
  std::vector<bool> is_split_;              // whether some operator is split along it
  std::vector<int64_t> bytes_;              // of the tensors that have it
  std::vector<int> order_;
};

// Counts the cost of a layout, class by class of operators.
class MeshCost {
 public:
  MeshCost(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
           const MeshOptions& options)
      : coarse_(coarse),
        model_(MakeCostModel(options.objective, graph, table, coarse, options.parts)) {}

  int64_t Of(int number, const ClassCuts& cuts) {
    const OpClass& op = coarse_.operators[number];
    // Element-wise operators of a class differ; others of equal shapes cost the same.
    std::vector<int> key = {op.elementwise ? -1 - number : op.signature,
                            static_cast<int>(op.nodes.size())};
    const auto add = [&](const Cuts& decided) {
      key.insert(key.end(), decided.begin(), decided.end());
    };
    add(cuts.operators[number]);
    for (const OpSlot& slot : op.slots) {
      key.push_back(slot.is_output ? -1 - slot.index : slot.index);
      add(cuts.tensors[slot.tensor_class]);
    }
    const auto [found, is_new] = known_.emplace(std::move(key), 0);
    if (is_new) found->second = model_->ClassCost(cuts, number);
    return found->second;
  }

  // The number of costs counted so far.
  size_t count() const { return known_.size(); }

  int64_t Of(const ClassCuts& cuts) {
    int64_t sum = 0;
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      sum += Of(static_cast<int>(p), cuts);
    }
    return sum;
  }

 private:
  const CoarseGraph& coarse_;
  const std::unique_ptr<const CostModel> model_;
  std::map<std::vector<int>, int64_t> known_;
};

class LayoutSearch {
 public:
  LayoutSearch(const MeshSpace& space, const MeshOptions& options, MeshCost* cost)
      : space_(space), options_(options), cost_(*cost) {}

  Layout Run() {
    has_tried_all_ = TryAll(0, Layout(options_.parts.size()));
    if (has_tried_all_) return best_;
    const std::vector<int>& order = space_.order();
    for (size_t start = 0; start < std::min(kMaxStarts, order.size()); ++start) {
      Keep(StartWith(order[start]));
    }
    Improve();
    return best_;
  }

  bool has_tried_all() const { return has_tried_all_; }

 private:
  // Tries every set of dimensions at this step and the later ones. Returns false if there
  // are too many.
  bool TryAll(size_t step, const Layout& layout) {
    if (step == layout.size()) {
      if (++tried_ > kMaxLayouts) return false;
      Keep(layout);
      return true;
    }
    return TryStep(step, 0, {}, layout);
  }

  // Tries the step with and without each dimension in turn, from order()[next] on. Only
  // sets to which no other dimension fits count.
  bool TryStep(size_t step, size_t next, const StepDimensions& chosen, Layout layout) {
    const std::vector<int>& order = space_.order();
    while (next < order.size() && !space_.Fits(order[next], step, chosen, layout)) ++next;
    if (next == order.size()) {
      if (space_.Complete(chosen, step, layout) != chosen) return ++tried_ <= kMaxLayouts;
      layout[step] = chosen;
      return TryAll(step + 1, layout);
    }
    StepDimensions with = chosen;
    with.insert(std::upper_bound(with.begin(), with.end(), order[next]), order[next]);
    return TryStep(step, next + 1, with, layout) &&
           TryStep(step, next + 1, chosen, layout);
  }

  // Returns whether the layout is the cheapest so far.
  bool Keep(const Layout& layout) {
    const int64_t cost = cost_.Of(space_.CutsOf(layout));
    if (least_ >= 0 && cost >= least_) return false;
    least_ = cost;
    best_ = layout;
    return true;
  }

  // The layout in which every step cuts `dim` if it can, and all dimensions that still
  // fit.
  Layout StartWith(int dim) const {
    Layout layout(options_.parts.size());
    for (size_t step = 0; step < layout.size(); ++step) {
      StepDimensions chosen;
      if (space_.Fits(dim, step, chosen, layout)) chosen.push_back(dim);
      layout[step] = space_.Complete(chosen, step, layout);
    }
    return layout;
  }

  void Improve() {
    bool improves = true;
    while (improves) {
      improves = false;
      for (size_t step = 0; step < best_.size(); ++step) {
        for (int dim : space_.order()) {
          if (cost_.count() > kMaxCosts) return;
          const std::optional<Layout> changed = With(dim, step, best_);
          improves = (changed && Keep(*changed)) || improves;
        }
      }
    }
  }

  // Adds `dim` to the step, drops the dimensions that conflict with it, and adds all that
  // still fit. Empty if the step cuts it already or cannot divide it.
  std::optional<Layout> With(int dim, size_t step, const Layout& layout) const {
    if (Has(layout[step], dim) || !space_.CanDivide(dim, step, layout))
      return std::nullopt;
    StepDimensions chosen = {dim};
    for (int other : layout[step]) {
      if (!space_.Conflict(other, {dim})) chosen.push_back(other);
    }
    std::sort(chosen.begin(), chosen.end());
    Layout changed = layout;
    changed[step] = space_.Complete(chosen, step, layout);
    return changed;
  }

  const MeshSpace& space_;
  const MeshOptions& options_;
  MeshCost& cost_;
  size_t tried_ = 0;
  bool has_tried_all_ = false;
  int64_t least_ = -1;
  Layout best_;
};

void Fill(const Cuts& found, Cuts* given) {
  for (size_t step = 0; step < found.size(); ++step) {
    if ((*given)[step] == kFree) (*given)[step] = found[step];
  }
}

}  // namespace

bool SearchMeshLayout(const Graph& graph, const StrategyTable& table,
                      const CoarseGraph& coarse, const MeshOptions& options,
                      ClassCuts* given) {
  const MeshSpace space(graph, table, coarse, given->tensors, options);
  MeshCost cost(graph, table, coarse, options);
  LayoutSearch search(space, options, &cost);
  const ClassCuts best = space.CutsOf(search.Run());
  for (size_t c = 0; c < coarse.tensors.size(); ++c) {
    Fill(best.tensors[c], &given->tensors[c]);
  }
  for (size_t p = 0; p < coarse.operators.size(); ++p) {
    if (!coarse.operators[p].elementwise) {
      Fill(best.operators[p], &given->operators[p]);
    }
  }
  return search.has_tried_all();
}

}  // namespace tofu
