#include "support/recount.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "graph/box.h"

namespace tofu {
namespace {

bool IsMarked(const std::vector<int>& cuts, const std::vector<int>& digits,
              const std::vector<int>& vars) {
  for (size_t i = 0; i < cuts.size(); ++i) {
    for (int var : vars) {
      if (cuts[i] == var && digits[i] != 0) return true;
    }
  }
  return false;
}

// Whether the access moves with a variable that some step splits.
bool MovesWith(const DimAccess& access, const std::vector<int>& cuts) {
  for (const auto& terms : {access.lo.terms, access.hi.terms}) {
    for (const AffineForm::Term& term : terms) {
      if (std::count(cuts.begin(), cuts.end(), term.var) > 0) return true;
    }
  }
  return false;
}

// An instance touches what its ranges say where it is split, and all of a
// dimension where it is not.
Box Region(const std::vector<DimAccess>& dims, const Shape& shape,
           const std::vector<int>& cuts, const std::vector<Range>& ranges) {
  Box box = AccessBox(dims, shape, ranges);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!MovesWith(dims[d], cuts))
      std::tie(box.begin[d], box.end[d]) = std::pair(0, shape[d]);
  }
  return Intersect(box, WholeBox(shape));
}

// One worker's fetches for one node.
int64_t RecountWorker(const Graph& graph, const StrategyTable& table, const Plan& plan,
                      const std::vector<bool>& used, int node, int worker) {
  const StrategyRow* row = table.row(node);
  const std::vector<int> digits = WorkerDigits(worker, plan.parts);
  const std::vector<int>& cuts = plan.op_cuts[node];
  const auto tile = [&](NodeEntry e) {
    return TileBox(graph.shape(e), plan.tensor_cuts[graph.entry_id(e)], plan.parts,
                   digits);
  };
  std::vector<Range> ranges;
  if (row != nullptr) ranges = VarRanges(*row, graph, node, cuts, plan.parts, digits);
  const bool idle =
      row != nullptr && row->random && IsMarked(cuts, digits, {kReplicated});
  int64_t bytes = 0;
  const Node& n = graph.nodes[node];
  for (size_t i = 0; i < n.inputs.size() && !idle; ++i) {
    const Box whole = WholeBox(graph.shape(n.inputs[i]));
    Box need = whole;
    if (row != nullptr && i < row->inputs.size()) {
      if (IsMarked(cuts, digits, row->inputs[i].only_first)) continue;
      need = Region(row->inputs[i].dims, whole.end, cuts, ranges);
    }
    bytes += 4 * (need.Volume() - Intersect(need, tile(n.inputs[i])).Volume());
  }
  for (int i = 0; i < n.num_outputs; ++i) {
    const NodeEntry e{node, i};
    if (!used[graph.entry_id(e)]) continue;
    Box made = WholeBox(graph.shape(e));
    int64_t copies = 1;
    if (row != nullptr && i < static_cast<int>(row->outputs.size())) {
      made = Region(row->outputs[i].dims, graph.shape(e), cuts, ranges);
      for (size_t step = 0; step < cuts.size(); ++step) {
        if (row->outputs[i].reduce.count(cuts[step]) > 0) copies *= plan.parts[step];
      }
    }
    const int64_t own = idle ? 0 : Intersect(made, tile(e)).Volume();
    bytes += 4 * (copies * tile(e).Volume() - own);
  }
  return bytes;
}

}  // namespace

int64_t RecountNode(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    const std::vector<bool>& used, int node) {
  bool live = false;
  for (int e = graph.first_entry[node]; e < graph.first_entry[node + 1]; ++e) {
    live = live || used[e];
  }
  int64_t bytes = 0;
  for (int worker = 0; live && worker < plan.workers(); ++worker) {
    bytes += RecountWorker(graph, table, plan, used, node, worker);
  }
  return bytes;
}

int64_t Recount(const Graph& graph, const StrategyTable& table, const Plan& plan) {
  const std::vector<bool> used = UsedEntries(graph);
  int64_t bytes = 0;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable()) continue;
    bytes += RecountNode(graph, table, plan, used, node);
  }
  return bytes;
}

}  // namespace tofu
