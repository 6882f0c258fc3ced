#include "passes/search/tilings/alternatives.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/box.h"
#include "passes/search/tilings/basic_tilings.h"

namespace tofu {
namespace {

WholeStep Whole(bool may_be_whole) {
  return may_be_whole ? WholeStep::kAlways : WholeStep::kOnlyWhenNothingCanBeCut;
}

bool IsReduced(const StrategyRow& row, int var) {
  return std::any_of(
      row.outputs.begin(), row.outputs.end(),
      [var](const OutputAccess& output) { return output.reduce.count(var) > 0; });
}

// Whether some free step reduces an output although it cuts another variable evenly.
bool ReducesNeedlessly(const StrategyRow& row, CutExtents extents, const Cuts& given,
                       const Cuts& cuts, const std::vector<int>& parts) {
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i] == kReplicated) continue;
    if (given[i] == kFree && IsReduced(row, cuts[i])) {
      for (int var : row.splittable) {
        if (!IsReduced(row, var) && extents.CutsEvenly(var, parts[i])) return true;
      }
    }
    extents.Cut(cuts[i], parts[i]);
  }
  return false;
}

void DropReductions(const StrategyRow& row, const CutExtents& extents, const Cuts& given,
                    const std::vector<int>& parts, std::vector<Cuts>* all) {
  std::vector<Cuts> kept;
  for (const Cuts& cuts : *all) {
    if (!ReducesNeedlessly(row, extents, given, cuts, parts)) kept.push_back(cuts);
  }
  if (!kept.empty()) *all = std::move(kept);
}

std::vector<Cuts> AlikeCuts(const CutExtents& extents, const std::vector<int>& candidates,
                            const Cuts& given, const std::vector<int>& parts,
                            bool may_be_whole) {
  std::vector<int> firsts = candidates;
  if (may_be_whole || candidates.empty()) firsts.push_back(kReplicated);
  std::vector<Cuts> found;
  for (int first : firsts) {
    const Cuts cuts = FillAlike(extents, candidates, first, given, parts);
    if (std::find(found.begin(), found.end(), cuts) == found.end()) found.push_back(cuts);
  }
  return found;
}

int64_t CoefficientOf(int var, const AffineForm& form) {
  int64_t sum = 0;
  for (const AffineForm::Term& term : form.terms) sum += term.var == var ? term.coef : 0;
  return sum;
}

bool IsSplittable(int var, const StrategyRow& row) {
  return std::find(row.splittable.begin(), row.splittable.end(), var) !=
         row.splittable.end();
}

// The form's largest numerator, if the variables for which `is_zero` holds are 0.
template <typename Predicate>
int64_t Numerator(const AffineForm& form, const Shape& extents, Predicate is_zero) {
  int64_t sum = form.constant;
  for (const AffineForm::Term& term : form.terms) {
    if (term.upper && !is_zero(term.var)) sum += term.coef * (extents[term.var] - 1);
  }
  return sum;
}

// Whether neighbouring values of a splittable variable may touch indices that are not
// neighbours, whatever the other splittable variables are. The distance of
// floor(a / k) from floor(b / k) is at most ceil((a - b) / k).
bool LeavesGaps(const DimAccess& access, const StrategyRow& row, const Shape& extents) {
  const auto is_splittable = [&row](int var) { return IsSplittable(var, row); };
  const int64_t width = Numerator(access.hi, extents, is_splittable) -
                        Numerator(access.lo, extents, is_splittable);
  for (int var : row.splittable) {
    const int64_t stride = CoefficientOf(var, access.lo);
    if (stride != CoefficientOf(var, access.hi)) return true;
    if (stride == 0) continue;
    if (access.lo.divisor != access.hi.divisor) return true;
    if (std::abs(stride) - width > access.lo.divisor) return true;
  }
  return false;
}

// Whether all values of all variables together touch all indices.
bool IsWhole(const DimAccess& access, const Shape& extents, int64_t extent) {
  const auto none = [](int) { return false; };
  return Numerator(access.lo, extents, none) < access.lo.divisor &&
         Numerator(access.hi, extents, none) >= (extent - 1) * access.hi.divisor;
}

// Whether a splittable variable is in several dimensions: then parts touch only what is
// near the diagonal.
bool HasDiagonal(const std::vector<DimAccess>& dims, const StrategyRow& row) {
  return std::any_of(row.splittable.begin(), row.splittable.end(), [&](int var) {
    return std::count_if(dims.begin(), dims.end(), [var](const DimAccess& access) {
             return !access.whole && (CoefficientOf(var, access.lo) != 0 ||
                                      CoefficientOf(var, access.hi) != 0);
           }) > 1;
  });
}

// The order in which a step tries cuts: `first`, then the candidates, all that it cuts
// evenly before the others; at last kReplicated.
std::vector<int> Preferred(const CutExtents& left, const std::vector<int>& candidates,
                           int first, int parts) {
  if (first == kReplicated) return {kReplicated};
  std::vector<int> preferred = {first};
  preferred.insert(preferred.end(), candidates.begin(), candidates.end());
  std::stable_partition(preferred.begin(), preferred.end(),
                        [&](int candidate) { return left.CutsEvenly(candidate, parts); });
  preferred.push_back(kReplicated);
  return preferred;
}

}  // namespace

bool MayComputeWhole(const Restrictions& restrictions, const StrategyRow* row) {
  if (row == nullptr || row->random) return false;
  return restrictions.operators_may_be_whole ||
         (restrictions.light_may_be_whole && row->light);
}

SplitVariables VariablesOf(const Graph& graph, const StrategyTable& table, int node,
                           const Restrictions& restrictions, bool adds_terms,
                           int uneven) {
  SplitVariables variables;
  variables.uneven = uneven;
  variables.row = table.row(node);
  if (variables.row == nullptr) return variables;
  for (size_t v = 0; v < variables.row->vars.size(); ++v) {
    variables.extents.push_back(
        VarExtent(*variables.row, static_cast<int>(v), graph, node));
  }
  variables.candidates = restrictions.basic_tilings ? BasicTilings(*variables.row)
                                                    : variables.row->splittable;
  variables.adds_terms = adds_terms;
  if (adds_terms) variables.candidates.push_back(variables.row->terms);
  return variables;
}

std::vector<int> TensorCandidates(const Shape& shape, const Restrictions& restrictions,
                                  TensorFreedom free) {
  const size_t count = restrictions.basic_tilings
                           ? std::min(shape.size(), kBasicDimensions)
                           : shape.size();
  std::vector<int> dims(count);
  std::iota(dims.begin(), dims.end(), 0);
  if (free.terms) dims.push_back(kTerms);
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

bool MaySkipElements(const Graph& graph, const StrategyRow& row, int node) {
  Shape extents;
  for (size_t v = 0; v < row.vars.size(); ++v) {
    extents.push_back(VarExtent(row, static_cast<int>(v), graph, node));
  }
  const std::vector<NodeEntry>& inputs = graph.nodes[node].inputs;
  for (size_t i = 0; i < inputs.size() && i < row.inputs.size(); ++i) {
    const std::vector<DimAccess>& dims = row.inputs[i].dims;
    const Shape& shape = graph.shape(inputs[i]);
    for (size_t d = 0; d < dims.size() && d < shape.size(); ++d) {
      if (dims[d].whole) continue;
      if (LeavesGaps(dims[d], row, extents) || !IsWhole(dims[d], extents, shape[d])) {
        return true;
      }
    }
    if (HasDiagonal(dims, row)) return true;
  }
  return false;
}

Cuts FillAlike(const CutExtents& extents, const std::vector<int>& candidates, int first,
               Cuts given, const std::vector<int>& parts) {
  CutExtents left = extents;
  for (size_t step = 0; step < given.size(); ++step) {
    int& cut = given[step];
    if (cut == kFree) {
      for (int candidate : Preferred(left, candidates, first, parts[step])) {
        cut = candidate;
        bool complete = true;
        if (!EnumerateCuts(extents, {}, given, parts, WholeStep::kAlways, 1, &complete)
                 .empty()) {
          break;
        }
      }
    }
    if (cut != kReplicated) left.Cut(cut, parts[step]);
  }
  return given;
}

std::vector<Cuts> TensorAlternatives(const Shape& shape, const Cuts& given,
                                     const std::vector<int>& parts,
                                     const Restrictions& restrictions, TensorFreedom free,
                                     size_t limit, bool* complete) {
  const std::vector<int> dims = TensorCandidates(shape, restrictions, free);
  const CutExtents extents(shape, restrictions.equal_tiles, free.uneven);
  *complete = true;
  if (restrictions.same_dimension) {
    return AlikeCuts(extents, dims, given, parts, free.whole);
  }
  return EnumerateCuts(extents, dims, given, parts, Whole(free.whole), limit, complete);
}

std::vector<Cuts> OperatorAlternatives(const SplitVariables& variables, const Cuts& given,
                                       const std::vector<int>& parts,
                                       const Restrictions& restrictions, size_t limit,
                                       bool* complete) {
  const CutExtents extents(variables.extents, restrictions.equal_tiles, variables.uneven);
  const std::vector<int>& candidates = variables.candidates;
  const auto mixes = [&](const Cuts& cuts) { return !ReducesOneWay(variables, cuts); };
  *complete = true;
  std::vector<Cuts> all;
  // The operator may be whole after all if every other way mixes kinds of reductions.
  const bool always =
      variables.adds_terms || MayComputeWhole(restrictions, variables.row);
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
