#include "passes/search/explain.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.h"
#include "graph/box.h"
#include "graph/names.h"
#include "graph/plan_json.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost.h"
#include "passes/search/cost/plan_bytes.h"
#include "passes/search/cost/slot_bytes.h"
#include "passes/search/recursion/step_search.h"
#include "passes/search/tilings/class_cuts.h"

namespace tofu {
namespace {

constexpr char kFormatId[] = "tofu-explanation";
constexpr int kVersion = 1;

class Explainer {
 public:
  Explainer(const Graph& graph, const StrategyTable& table, const Plan& plan)
      : graph_(graph),
        table_(table),
        plan_(plan),
        coarse_(ClassesOf(graph, table, plan)),
        cuts_(ClassCutsOf(graph, coarse_, plan)),
        searcher_(graph, table, coarse_, plan.parts, {}) {}

  OrderedJson Run(const std::string& name) {
    const int entry = FindEntry(graph_, name);
    TOFU_CHECK_USER(entry >= 0, Blame::kPlan)
        << "explain \"" << name << "\": found no tensor or operator of that name among "
        << graph_.num_nodes() << " nodes, expected one that tofu plan lists";
    const int node = NodeOf(entry);
    OrderedJson json = {{"format", kFormatId},
                        {"version", kVersion},
                        {"name", name},
                        {"total_bytes", plan_.total_bytes()}};
    json["tensor"] = TensorJson(entry);
    const bool is_variable = graph_.nodes[node].is_variable();
    json["operator"] = is_variable ? OrderedJson() : OperatorJson(node);
    return json;
  }

 private:
  int NodeOf(int entry) const {
    const std::vector<int>& first = graph_.first_entry;
    return static_cast<int>(std::upper_bound(first.begin(), first.end(), entry) -
                            first.begin()) -
           1;
  }

  // --- The explanation of a tensor.

  OrderedJson TensorJson(int entry) {
    const int tensor = coarse_.tensor_class[entry];
    OrderedJson steps = OrderedJson::array();
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      steps.push_back({{"parts", plan_.parts[step]},
                       {"chosen", TensorCutJson(cuts_.tensors[tensor][step])},
                       {"alternatives", AlternativesJson(tensor, step)}});
    }
    OrderedJson cuts = OrderedJson::array();
    for (int cut : cuts_.tensors[tensor]) cuts.push_back(TensorCutJson(cut));
    return {{"name", EntryName(graph_, entry)},
            {"shape", graph_.shapes[entry]},
            {"dtype", graph_.dtypes[entry]},
            {"cuts", std::move(cuts)},
            {"tied", coarse_.tensors[tensor].entries.size()},
            {"steps", std::move(steps)}};
  }

  OrderedJson AlternativesJson(int tensor, size_t step) {
    const Shape& shape = coarse_.tensors[tensor].shape;
    std::vector<int> dims;
    for (size_t d = 0; d < shape.size(); ++d) dims.push_back(static_cast<int>(d));
    if (coarse_.tensors[tensor].may_wait) dims.push_back(kTerms);
    Cuts given = cuts_.tensors[tensor];
    given[step] = kFree;
    bool complete = true;
    OrderedJson alternatives = OrderedJson::array();
    for (const Cuts& cuts :
         EnumerateCuts(CutExtents(shape), dims, given, plan_.parts, WholeStep::kAlways,
                       std::numeric_limits<size_t>::max(), &complete)) {
      const int64_t local = LocalBytes(tensor, cuts, step);
      const int64_t searched = std::min(local, SearchedBytes(tensor, cuts, step));
      alternatives.push_back({{"cut", TensorCutJson(cuts[step])},
                              {"local_bytes", local},
                              {"searched_bytes", searched}});
    }
    return alternatives;
  }

  // The plan's bytes if the operators that touch the tensor choose this step again.
  int64_t LocalBytes(int tensor, const Cuts& cuts, size_t step) const {
    ClassCuts changed = cuts_;
    changed.tensors[tensor] = cuts;
    int64_t total = plan_.total_bytes();
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      const OpClass& op = coarse_.operators[p];
      const bool touches = std::any_of(
          op.slots.begin(), op.slots.end(),
          [tensor](const OpSlot& slot) { return slot.tensor_class == tensor; });
      if (!touches) continue;
      const auto count = static_cast<int64_t>(op.nodes.size());
      total -= plan_.node_bytes[op.nodes[0]] * count;
      total += LeastBytes(static_cast<int>(p), step, &changed) * count;
    }
    return total;
  }

  int64_t LeastBytes(int p, size_t step, ClassCuts* cuts) const {
    if (coarse_.operators[p].elementwise) {
      return ClassBytes(graph_, table_, coarse_, *cuts, p, plan_.parts.size(),
                        plan_.division());
    }
    Cuts given = cuts_.operators[p];
    given[step] = kFree;
    bool complete = true;
    int64_t least = std::numeric_limits<int64_t>::max();
    const int node = coarse_.operators[p].nodes[0];
    for (const Cuts& alternative : OperatorAlternatives(
             VariablesOf(graph_, table_, node, {}, coarse_.operators[p].adds_terms),
             given, plan_.parts, {}, std::numeric_limits<size_t>::max(), &complete)) {
      cuts->operators[p] = alternative;
      least = std::min(least, ClassBytes(graph_, table_, coarse_, *cuts, p,
                                         plan_.parts.size(), plan_.division()));
    }
    cuts->operators[p] = cuts_.operators[p];
    return least;
  }

  // The plan's bytes if everything else chooses this step again. The search knows equal
  // shares only; its result is counted with the plan's shares.
  int64_t SearchedBytes(int tensor, const Cuts& cuts, size_t step) {
    ClassCuts given = cuts_;
    for (Cuts& other : given.tensors) other[step] = kFree;
    for (size_t p = 0; p < given.operators.size(); ++p) {
      given.operators[p].assign(plan_.parts.size(), kFree);
      if (coarse_.operators[p].elementwise) continue;
      given.operators[p] = cuts_.operators[p];
      given.operators[p][step] = kFree;
    }
    given.tensors[tensor] = cuts;
    const SearchResult found = searcher_.Search(given, {});
    if (plan_.shares.IsPlain()) return found.cost;
    return CountPlanBytes(graph_, table_, coarse_, found.cuts, plan_.division());
  }

  // --- The explanation of an operator.

  OrderedJson OperatorJson(int node) const {
    const StrategyRow* row = table_.row(node);
    OrderedJson steps = OrderedJson::array();
    for (size_t step = 0; step < plan_.parts.size(); ++step) {
      steps.push_back({{"parts", plan_.parts[step]},
                       {"chosen", VarName(row, plan_.op_cuts[node][step])},
                       {"strategies", StrategiesJson(node, step)}});
    }
    return {{"name", graph_.nodes[node].name},
            {"op", graph_.nodes[node].op},
            {"cuts", OperatorCutsJson(row, plan_.op_cuts[node])},
            {"bytes", plan_.node_bytes[node]},
            {"steps", std::move(steps)}};
  }

  static OrderedJson VarName(const StrategyRow* row, int var) {
    return var == kReplicated ? OrderedJson() : OrderedJson(row->vars[var].name);
  }

  OrderedJson StrategiesJson(int node, size_t step) const {
    const StrategyRow* row = table_.row(node);
    Shape extents;
    for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
      extents.push_back(VarExtent(*row, static_cast<int>(v), graph_, node));
    }
    Cuts given = plan_.op_cuts[node];
    given[step] = kFree;
    bool complete = true;
    OrderedJson strategies = OrderedJson::array();
    for (const Cuts& cuts : EnumerateCuts(
             CutExtents(extents), row == nullptr ? std::vector<int>() : row->splittable,
             given, plan_.parts, WholeStep::kAlways, std::numeric_limits<size_t>::max(),
             &complete)) {
      strategies.push_back(StrategyJson(node, cuts, step));
    }
    return strategies;
  }

  OrderedJson StrategyJson(int node, const Cuts& cuts, size_t step) const {
    const StrategyRow* row = table_.row(node);
    const OperatorRegions regions(graph_, table_, node, cuts, plan_.division());
    OrderedJson inputs = OrderedJson::array();
    OrderedJson outputs = OrderedJson::array();
    int64_t total = 0;
    for (const OpSlot& slot : coarse_.operators[coarse_.op_class[node]].slots) {
      const NodeEntry entry = slot.is_output ? NodeEntry{node, slot.index}
                                             : graph_.nodes[node].inputs[slot.index];
      const GroupBoxes tiles = TileBoxes(
          graph_.shape(entry), cuts_.tensors[slot.tensor_class], plan_.division());
      const int64_t elements = slot.is_output ? regions.OutputElements(slot.index, tiles)
                                              : regions.InputElements(slot.index, tiles);
      const int64_t bytes = elements * DtypeBytes(graph_.dtype(entry));
      total += bytes;
      OrderedJson json = {{"index", slot.index},
                          {"tensor", EntryName(graph_, graph_.entry_id(entry))},
                          {"bytes", bytes}};
      if (slot.is_output) json["combine"] = Combine(row, slot.index, cuts[step]);
      (slot.is_output ? outputs : inputs).push_back(std::move(json));
    }
    return {{"variable", VarName(row, cuts[step])},
            {"bytes", total},
            {"inputs", std::move(inputs)},
            {"outputs", std::move(outputs)}};
  }

  // Names the operation that combines the parts of an output that is split along `var`.
  static const char* Combine(const StrategyRow* row, int index, int var) {
    if (var == kReplicated || index >= static_cast<int>(row->outputs.size())) {
      return "whole";
    }
    const OutputAccess& output = row->outputs[index];
    const auto it = output.reduce.find(var);
    if (it == output.reduce.end()) return Mentions(output, var) ? "concatenate" : "whole";
    switch (it->second) {
      case Reducer::kSum:
        return "sum";
      case Reducer::kMax:
        return "max";
      case Reducer::kMin:
        return "min";
      case Reducer::kProd:
        return "prod";
      case Reducer::kLogSumExp:
        return "logsumexp";
      case Reducer::kWeighted:
        return "weighted";
      case Reducer::kApart:
        break;
    }
    return "whole";
  }

  static bool Mentions(const OutputAccess& output, int var) {
    for (const DimAccess& dim : output.dims) {
      for (const AffineForm::Term& term : dim.lo.terms) {
        if (!dim.whole && term.var == var) return true;
      }
    }
    return false;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const CoarseGraph coarse_;
  const ClassCuts cuts_;
  PartitionSearcher searcher_;
};

}  // namespace

std::string Explain(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::string& name) {
  return DumpJson(Explainer(graph, table, plan).Run(name));
}

}  // namespace tofu
