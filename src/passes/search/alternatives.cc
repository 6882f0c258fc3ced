#include "passes/search/alternatives.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/box.h"
#include "passes/search/basic_tilings.h"

namespace tofu {
namespace {

WholeStep Whole(bool may_be_whole) {
  return may_be_whole ? WholeStep::kAlways : WholeStep::kOnlyWhenNothingDivides;
}

bool IsReduced(const StrategyRow& row, int var) {
  return std::any_of(
      row.outputs.begin(), row.outputs.end(),
      [var](const OutputAccess& output) { return output.reduce.count(var) > 0; });
}

// Whether some free step reduces an output although another variable divides.
bool ReducesNeedlessly(const StrategyRow& row, std::vector<int64_t> extents,
                       const Cuts& given, const Cuts& cuts,
                       const std::vector<int>& parts) {
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] == kReplicated) continue;
    if (given[i] == kFree && IsReduced(row, cuts[i])) {
      for (int var : row.splittable) {
        if (!IsReduced(row, var) && extents[var] % parts[i] == 0) return true;
      }
    }
    extents[cuts[i]] /= parts[i];
  }
  return false;
}

void DropReductions(const StrategyRow& row, const std::vector<int64_t>& extents,
                    const Cuts& given, const std::vector<int>& parts,
                    std::vector<Cuts>* all) {
  std::vector<Cuts> kept;
  for (const Cuts& cuts : *all) {
    if (!ReducesNeedlessly(row, extents, given, cuts, parts)) kept.push_back(cuts);
  }
  if (!kept.empty()) *all = std::move(kept);
}

std::vector<Cuts> AlikeCuts(const std::vector<int64_t>& extents,
                            const std::vector<int>& candidates, const Cuts& given,
                            const std::vector<int>& parts, bool may_be_whole) {
  std::vector<int> firsts = candidates;
  if (may_be_whole || candidates.empty()) firsts.push_back(kReplicated);
  std::vector<Cuts> found;
  for (int first : firsts) {
    const Cuts cuts = FillAlike(extents, candidates, first, given, parts);
    if (std::find(found.begin(), found.end(), cuts) == found.end()) found.push_back(cuts);
  }
  return found;
}

}  // namespace

bool MayComputeWhole(const Restrictions& restrictions, const StrategyRow* row) {
  return restrictions.operators_may_be_whole && row != nullptr && !row->random;
}

SplitVariables VariablesOf(const Graph& graph, const StrategyTable& table, int node,
                           const Restrictions& restrictions) {
  SplitVariables variables;
  variables.row = table.row(node);
  if (variables.row == nullptr) return variables;
  for (size_t v = 0; v < variables.row->vars.size(); ++v) {
    variables.extents.push_back(
        VarExtent(*variables.row, static_cast<int>(v), graph, node));
  }
  variables.candidates = restrictions.basic_tilings ? BasicTilings(*variables.row)
                                                    : variables.row->splittable;
  return variables;
}

std::vector<int> DimensionsOf(const Shape& shape, const Restrictions& restrictions) {
  const size_t count = restrictions.basic_tilings
                           ? std::min(shape.size(), kBasicDimensions)
                           : shape.size();
  std::vector<int> dims(count);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

bool ReducesOneWay(const SplitVariables& variables, const Cuts& cuts) {
  if (variables.row == nullptr) return true;
  for (const OutputAccess& output : variables.row->outputs) {
    std::optional<Reducer> reducer;
    for (int cut : cuts) {
      const auto it = output.reduce.find(cut);
      if (it == output.reduce.end()) continue;
      if (reducer.value_or(it->second) != it->second) return false;
      reducer = it->second;
    }
  }
  return true;
}

bool MayMixReductions(const StrategyRow& row) {
  for (const OutputAccess& output : row.outputs) {
    for (int a : row.splittable) {
      for (int b : row.splittable) {
        const auto of_a = output.reduce.find(a);
        const auto of_b = output.reduce.find(b);
        if (of_a == output.reduce.end() || of_b == output.reduce.end()) continue;
        if (of_a->second != of_b->second) return true;
      }
    }
  }
  return false;
}

Cuts FillAlike(const std::vector<int64_t>& extents, const std::vector<int>& candidates,
               int first, Cuts given, const std::vector<int>& parts) {
  std::vector<int> preferred = {first};
  preferred.insert(preferred.end(), candidates.begin(), candidates.end());
  preferred.push_back(kReplicated);
  for (int& cut : given) {
    if (cut != kFree) continue;
    for (int candidate : preferred) {
      cut = candidate;
      bool complete = true;
      if (!EnumerateCuts(extents, {}, given, parts, WholeStep::kAlways, 1, &complete)
               .empty()) {
        break;
      }
    }
  }
  return given;
}

std::vector<Cuts> TensorAlternatives(const Shape& shape, const Cuts& given,
                                     const std::vector<int>& parts,
                                     const Restrictions& restrictions, bool may_be_whole,
                                     size_t limit, bool* complete) {
  const std::vector<int> dims = DimensionsOf(shape, restrictions);
  *complete = true;
  if (restrictions.same_dimension) {
    return AlikeCuts(shape, dims, given, parts, may_be_whole);
  }
  return EnumerateCuts(shape, dims, given, parts, Whole(may_be_whole), limit, complete);
}

std::vector<Cuts> OperatorAlternatives(const Graph& graph, const StrategyTable& table,
                                       int node, const Cuts& given,
                                       const std::vector<int>& parts,
                                       const Restrictions& restrictions, size_t limit,
                                       bool* complete) {
  const SplitVariables variables = VariablesOf(graph, table, node, restrictions);
  const std::vector<int64_t>& extents = variables.extents;
  const std::vector<int>& candidates = variables.candidates;
  const auto mixes = [&](const Cuts& cuts) { return !ReducesOneWay(variables, cuts); };
  *complete = true;
  std::vector<Cuts> all;
  // Whole only if every other way mixes reductions of different kinds.
  const bool always = MayComputeWhole(restrictions, variables.row);
  for (const bool may_be_whole : {always, true}) {
    if (!all.empty() || !*complete) break;
    all = restrictions.same_dimension
              ? AlikeCuts(extents, candidates, given, parts, may_be_whole)
              : EnumerateCuts(extents, candidates, given, parts, Whole(may_be_whole),
                              limit, complete);
    all.erase(std::remove_if(all.begin(), all.end(), mixes), all.end());
  }
  if (restrictions.forbid_output_reduction && variables.row != nullptr) {
    DropReductions(*variables.row, extents, given, parts, &all);
  }
  return all;
}

}  // namespace tofu
