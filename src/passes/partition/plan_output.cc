#include "passes/partition/plan_output.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/reduction_tiles.h"
#include "passes/partition/plan_route.h"

namespace tofu {
namespace {

// The terms of a sum that workers hold. Workers hold different terms if their digits
// differ at one of these steps.
struct Terms {
  std::vector<Box> boxes;  // [worker]
  std::vector<int> steps;
};

bool Has(const std::vector<int>& steps, int step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// The smallest extent of the tiles along each dimension.
Shape SmallestExtents(const std::vector<Box>& tiles) {
  Shape smallest = tiles[0].Extents();
  for (const Box& tile : tiles) {
    const Shape extents = tile.Extents();
    for (size_t d = 0; d < extents.size(); ++d) {
      smallest[d] = std::min(smallest[d], extents[d]);
    }
  }
  return smallest;
}

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
    for (const TileSplits& splits : Tilings(SmallestExtents(tiles))) {
      OutputFetches fetches = InPieces(tiles, splits);
      const int64_t elements = Elements(fetches);
      if (elements >= least) continue;
      least = elements;
      best = std::move(fetches);
    }
    return best;
  }

  FetchSpec Reduce(int worker, const Box& region) const {
    return Add(worker, region, Made(), reduction_.steps);
  }

  std::vector<std::vector<FetchSpec>> Route(const OutputRoute& route,
                                            const std::vector<Box>& tiles) const {
    const std::string name =
        graph_.nodes[output_.node].name + "/out" + std::to_string(output_.index);
    std::vector<std::vector<FetchSpec>> moves;
    Terms terms = Made();
    TileSplits before;
    for (const TileSplits& splits : route.partial) {
      CheckDivides(name, splits, before);
      std::vector<int> adds;
      for (size_t i = before.size(); i < splits.size(); ++i) {
        CheckRoute(Has(terms.steps, splits[i].step), name, "a sum of what is no term");
        adds.push_back(splits[i].step);
      }
      const std::vector<Box> pieces =
          RoutePieces(name, Made().boxes, splits, plan_.parts);
      moves.push_back(AddAll(pieces, terms, adds));
      terms.boxes = pieces;
      terms.steps.erase(std::remove_if(terms.steps.begin(), terms.steps.end(),
                                       [&](int step) { return Has(adds, step); }),
                        terms.steps.end());
      before = splits;
    }
    if (route.stops.empty()) {
      moves.push_back(AddAll(tiles, terms, terms.steps));
      return moves;
    }
    const RouteRequest request{name, tiles,       WholeBox(graph_.shape(output_)),
                               "0",  route.stops, plan_.parts};
    const auto from_terms = [&](int worker, const Box& region) {
      return Add(worker, region, terms, terms.steps);
    };
    for (auto& move : PlanRoute(request, from_terms)) moves.push_back(std::move(move));
    return moves;
  }

 private:
  Terms Made() const {
    Terms terms;
    for (const OperatorPart& part : parts_) {
      terms.boxes.push_back(part.outputs[output_.index]);
    }
    terms.steps = reduction_.steps;
    return terms;
  }

  std::vector<FetchSpec> AddAll(const std::vector<Box>& regions, const Terms& terms,
                                const std::vector<int>& adds) const {
    std::vector<FetchSpec> fetches;
    for (int w = 0; w < plan_.workers(); ++w) {
      fetches.push_back(Add(w, regions[w], terms, adds));
    }
    return fetches;
  }

  // Adds up the terms that differ at the steps `adds`.
  FetchSpec Add(int worker, const Box& region, const Terms& held,
                const std::vector<int>& adds) const {
    int num_terms = 1;
    for (int step : adds) num_terms *= plan_.parts[step];
    std::vector<std::vector<FetchSource>> terms(num_terms);
    const std::vector<int> own = WorkerDigits(worker, plan_.parts);
    for (int w : preference_[worker]) {
      if (!parts_[w].active) continue;
      const std::vector<int> digits = WorkerDigits(w, plan_.parts);
      const bool is_other = std::any_of(held.steps.begin(), held.steps.end(), [&](int s) {
        return digits[s] != own[s] && !Has(adds, s);
      });
      if (is_other) continue;
      int term = 0;
      for (int step : adds) term = term * plan_.parts[step] + digits[step];
      terms[term].push_back({w, held.boxes[w]});
    }
    try {
      return PlanReduction(worker, region, terms, reduction_.reduce);
    } catch (const FetchGap& gap) {
      const Node& node = graph_.nodes[output_.node];
      throw UserError(Blame::kTable,
                      "node " + node.name + " (" + node.op.text() + "), output " +
                          std::to_string(output_.index) + ": no part produces " +
                          BoxText(gap.box()) + " of the tile " + BoxText(region) +
                          " of worker " + std::to_string(worker) +
                          ", expected the parts to cover the output; correct the "
                          "operator's description");
    }
  }

  static int64_t Elements(const OutputFetches& fetches) {
    int64_t elements = 0;
    for (const FetchSpec& spec : fetches.first) elements += FetchedElements(spec);
    for (const FetchSpec& spec : fetches.gather) elements += FetchedElements(spec);
    return elements;
  }

  std::vector<TileSplits> Tilings(const Shape& smallest) const {
    if (reduction_.steps.empty()) return {};
    const int entry = graph_.entry_id(output_);
    std::vector<SharedStep> steps;
    for (size_t i = 0; i < plan_.parts.size(); ++i) {
      if (plan_.tensor_cuts[entry][i] != kReplicated) continue;
      const int step = static_cast<int>(i);
      steps.push_back({step, plan_.parts[i], Has(reduction_.steps, step)});
    }
    return ReductionTilings(smallest, steps);
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

std::vector<std::vector<FetchSpec>> PlanOutputRoute(
    const Graph& graph, const Plan& plan, const OutputRoute& route,
    const std::vector<OperatorPart>& parts, const OutputReduction& reduction,
    const std::vector<Box>& tiles) {
  return OutputPlanner(graph, plan, {route.node, route.output}, parts, reduction)
      .Route(route, tiles);
}

FetchSpec PlanOutputRegion(const Graph& graph, const Plan& plan, NodeEntry output,
                           const std::vector<OperatorPart>& parts,
                           const OutputReduction& reduction, int worker,
                           const Box& region) {
  return OutputPlanner(graph, plan, output, parts, reduction).Reduce(worker, region);
}

}  // namespace tofu
