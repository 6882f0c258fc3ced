#include "passes/partition/plan_output.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/reduction_tiles.h"

namespace tofu {
namespace {

class OutputPlanner {
 public:
  OutputPlanner(const Graph& graph, const Plan& plan, NodeEntry output,
                const std::vector<OperatorPart>& parts, const OutputReduction& reduction)
      : graph_(graph),
        plan_(plan),
        output_(output),
        parts_(parts),
        reduction_(reduction),
        preference_(FetchPreference(plan.parts)) {}

  OutputFetches Run(const std::vector<Box>& tiles) const {
    OutputFetches best = Directly(tiles);
    int64_t least = Elements(best);
    for (const TileSplits& splits : Tilings(tiles[0])) {
      OutputFetches found = InPieces(tiles, splits);
      const int64_t elements = Elements(found);
      if (elements >= least) continue;
      least = elements;
      best = std::move(found);
    }
    return best;
  }

  FetchSpec Reduce(int worker, const Box& region) const {
    int num_terms = 1;
    for (int step : reduction_.steps) num_terms *= plan_.parts[step];
    std::vector<std::vector<FetchSource>> terms(num_terms);
    for (int w : preference_[worker]) {
      if (!parts_[w].active) continue;
      const std::vector<int> digits = WorkerDigits(w, plan_.parts);
      int term = 0;
      for (int step : reduction_.steps) term = term * plan_.parts[step] + digits[step];
      terms[term].push_back({w, parts_[w].outputs[output_.index]});
    }
    try {
      return PlanReduction(worker, region, terms, reduction_.reduce);
    } catch (const FetchGap& gap) {
      const Node& node = graph_.nodes[output_.node];
      throw UserError(Blame::kTable,
                      "node " + node.name + " (" + node.op + "), output " +
                          std::to_string(output_.index) + ": no part produces " +
                          BoxText(gap.box()) + " of the tile " + BoxText(region) +
                          " of worker " + std::to_string(worker) +
                          ", expected the parts to cover the output; correct the "
                          "operator's description");
    }
  }

 private:
  static int64_t Elements(const OutputFetches& fetches) {
    int64_t elements = 0;
    for (const FetchSpec& spec : fetches.first) elements += FetchedElements(spec);
    for (const FetchSpec& spec : fetches.gather) elements += FetchedElements(spec);
    return elements;
  }

  std::vector<TileSplits> Tilings(const Box& tile) const {
    if (reduction_.steps.empty()) return {};
    const int entry = graph_.entry_id(output_);
    std::vector<SharedStep> steps;
    for (size_t i = 0; i < plan_.parts.size(); ++i) {
      if (plan_.tensor_cuts[entry][i] != kReplicated) continue;
      const int step = static_cast<int>(i);
      const bool reduces = std::find(reduction_.steps.begin(), reduction_.steps.end(),
                                     step) != reduction_.steps.end();
      steps.push_back({step, plan_.parts[i], reduces});
    }
    return ReductionTilings(tile.Extents(), steps);
  }

  OutputFetches Directly(const std::vector<Box>& boxes) const {
    OutputFetches fetches;
    for (int w = 0; w < plan_.workers(); ++w) {
      fetches.first.push_back(Reduce(w, boxes[w]));
    }
    return fetches;
  }

  OutputFetches InPieces(const std::vector<Box>& tiles, const TileSplits& splits) const {
    std::vector<Box> pieces;
    for (int w = 0; w < plan_.workers(); ++w) {
      pieces.push_back(
          PieceBox(tiles[w], splits, plan_.parts, WorkerDigits(w, plan_.parts)));
    }
    OutputFetches fetches = Directly(pieces);
    const Box whole = WholeBox(graph_.shape(output_));
    for (int w = 0; w < plan_.workers(); ++w) {
      std::vector<FetchSource> sources;
      for (int source : preference_[w]) sources.push_back({source, pieces[source]});
      fetches.gather.push_back(PlanFetch(w, tiles[w], whole, sources));
    }
    return fetches;
  }

  const Graph& graph_;
  const Plan& plan_;
  const NodeEntry output_;
  const std::vector<OperatorPart>& parts_;
  const OutputReduction& reduction_;
  const std::vector<std::vector<int>> preference_;
};

}  // namespace

OutputFetches PlanOutput(const Graph& graph, const Plan& plan, NodeEntry output,
                         const std::vector<OperatorPart>& parts,
                         const OutputReduction& reduction,
                         const std::vector<Box>& tiles) {
  return OutputPlanner(graph, plan, output, parts, reduction).Run(tiles);
}

FetchSpec PlanOutputRegion(const Graph& graph, const Plan& plan, NodeEntry output,
                           const std::vector<OperatorPart>& parts,
                           const OutputReduction& reduction, int worker,
                           const Box& region) {
  return OutputPlanner(graph, plan, output, parts, reduction).Reduce(worker, region);
}

}  // namespace tofu
