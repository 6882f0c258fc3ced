#include "passes/divide/operator_parts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

std::string Where(const Graph& graph, int node) {
  return "node " + graph.nodes[node].name + " (" + graph.nodes[node].op.text() + ")";
}

// Clips a box to the shape; a box outside it gets extents of 0.
Box Clipped(const Box& box, const Shape& shape) {
  Box inside = Intersect(box, WholeBox(shape));
  for (int d = 0; d < inside.rank(); ++d) {
    inside.end[d] = std::max(inside.begin[d], inside.end[d]);
  }
  return inside;
}

bool IsSplit(const std::vector<int>& cuts, int var) {
  return std::find(cuts.begin(), cuts.end(), var) != cuts.end();
}

bool AnySplit(const std::vector<int>& cuts, const std::vector<int>& vars) {
  return std::any_of(vars.begin(), vars.end(),
                     [&](int var) { return IsSplit(cuts, var); });
}

bool DependsOnSplit(const DimAccess& access, const std::vector<int>& cuts) {
  for (const AffineForm* form : {&access.lo, &access.hi}) {
    for (const AffineForm::Term& term : form->terms) {
      if (IsSplit(cuts, term.var)) return true;
    }
  }
  return false;
}

// The region that a part needs or produces. It is whole along dimensions that no split
// variable affects, even if the operator skips elements: there the instance works as the
// serial operator does.
Box PartRegion(const std::vector<DimAccess>& dims, const Shape& shape,
               const std::vector<int>& cuts, const std::vector<Range>& ranges) {
  Box box = AccessBox(dims, shape, ranges);
  for (size_t d = 0; d < dims.size() && d < shape.size(); ++d) {
    if (DependsOnSplit(dims[d], cuts)) continue;
    box.begin[d] = 0;
    box.end[d] = shape[d];
  }
  return Clipped(box, shape);
}

std::string RewrittenAttr(const AttrRewrite& rewrite, const std::vector<Range>& ranges,
                          const std::vector<Box>& outputs, const std::string& where) {
  switch (rewrite.kind) {
    case AttrRewrite::Kind::kConst:
      return rewrite.text;
    case AttrRewrite::Kind::kOutputShape:
      TOFU_CHECK_USER(
          rewrite.output >= 0 && rewrite.output < static_cast<int>(outputs.size()),
          Blame::kTable)
          << where << ": attribute " << rewrite.name << " is the shape of output "
          << rewrite.output << ", expected below " << outputs.size();
      return TupleText(outputs[rewrite.output].Extents());
    case AttrRewrite::Kind::kBegin:
      return std::to_string(ranges.at(rewrite.sizes.at(0)).begin);
    case AttrRewrite::Kind::kSize:
    case AttrRewrite::Kind::kSizes:
      break;
  }
  Shape sizes;
  for (int var : rewrite.sizes) sizes.push_back(ranges.at(var).size());
  if (rewrite.kind == AttrRewrite::Kind::kSizes) return TupleText(sizes);
  TOFU_CHECK_USER(sizes.size() == 1, Blame::kTable)
      << where << ": attribute " << rewrite.name << " is the size of " << sizes.size()
      << " variables, expected one";
  return std::to_string(sizes[0] * rewrite.times);
}

InputRegion NeededRegion(const InputAccess& access, int terms, const Shape& shape,
                         const std::vector<int>& cuts, const std::vector<Range>& ranges) {
  InputRegion region;
  if (access.pad && AnySplit(cuts, access.pad->vars)) {
    region.box = AccessBox(access.dims, shape, ranges);
    region.fill = access.pad->fill;
  } else {
    region.box = PartRegion(access.dims, shape, cuts, ranges);
  }
  region.zeros =
      std::any_of(access.only_first.begin(), access.only_first.end(),
                  [&](int v) { return v != terms && ranges.at(v).begin != 0; });
  return region;
}

// The part of a node with a row, for a worker with these digits.
OperatorPart DescribedPart(const Graph& graph, const StrategyRow& row, int node,
                           const std::vector<int>& cuts, const Division& parts,
                           const std::vector<int>& digits) {
  const Node& n = graph.nodes[node];
  const std::vector<Range> ranges = VarRanges(row, graph, node, cuts, parts, digits);
  OperatorPart part;
  for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
    const Shape& shape = graph.shape(n.inputs[slot]);
    if (slot < row.inputs.size()) {
      part.inputs.push_back(
          NeededRegion(row.inputs[slot], row.terms, shape, cuts, ranges));
    } else {
      part.inputs.push_back({WholeBox(shape)});
    }
  }
  for (int output = 0; output < n.num_outputs; ++output) {
    const Shape& shape = graph.shape({node, output});
    const bool listed = output < static_cast<int>(row.outputs.size());
    if (!listed) {
      part.outputs.push_back(WholeBox(shape));
    } else if (const int like = row.outputs[output].like; like >= 0) {
      part.outputs.push_back(WholeBox(part.inputs[like].box.Extents()));
    } else {
      part.outputs.push_back(PartRegion(row.outputs[output].dims, shape, cuts, ranges));
    }
  }
  part.attrs = WithoutTofuAttrs(n.attrs);
  for (const AttrRewrite& rewrite : row.attrs) {
    if (!AnySplit(cuts, rewrite.vars)) continue;
    part.attrs[rewrite.name] =
        RewrittenAttr(rewrite, ranges, part.outputs, Where(graph, node));
  }
  for (size_t step = 0; step < parts.size() && row.random; ++step) {
    if (cuts[step] == kReplicated && digits[step] != 0) part.active = false;
  }
  return part;
}

// Where the operator is split along its terms, an input that is no sum counts for the
// first part.
void SetZerosForTerms(const Graph& graph, const StrategyRow& row, const Plan& plan,
                      int node, const std::vector<int>& digits, OperatorPart* part) {
  for (size_t step = 0; step < digits.size() && row.terms >= 0; ++step) {
    if (plan.op_cuts[node][step] != row.terms || digits[step] == 0) continue;
    for (size_t slot = 0; slot < row.inputs.size(); ++slot) {
      const int entry = graph.entry_id(graph.nodes[node].inputs[slot]);
      if (plan.tensor_cuts[entry][step] != kTerms) part->inputs[slot].zeros = true;
    }
  }
}

OperatorPart WholePart(const Graph& graph, int node) {
  const Node& n = graph.nodes[node];
  OperatorPart part;
  for (NodeEntry input : n.inputs) part.inputs.push_back({WholeBox(graph.shape(input))});
  for (int output = 0; output < n.num_outputs; ++output) {
    part.outputs.push_back(WholeBox(graph.shape({node, output})));
  }
  part.attrs = WithoutTofuAttrs(n.attrs);
  return part;
}

}  // namespace

OperatorPart PartOf(const Graph& graph, const StrategyTable& table, const Plan& plan,
                    int node, int worker) {
  const StrategyRow* row = table.row(node);
  if (row == nullptr) return WholePart(graph, node);
  const std::vector<int> digits = WorkerDigits(worker, plan.parts);
  OperatorPart part =
      DescribedPart(graph, *row, node, plan.op_cuts[node], plan.division(), digits);
  SetZerosForTerms(graph, *row, plan, node, digits, &part);
  return part;
}

OutputReduction ReductionOf(const Graph& graph, const StrategyTable& table,
                            const Plan& plan, int node, int output) {
  OutputReduction reduction;
  const StrategyRow* row = table.row(node);
  if (row == nullptr || output >= static_cast<int>(row->outputs.size())) return reduction;
  const auto& reduce = row->outputs[output].reduce;
  const std::vector<int>& cuts = plan.op_cuts[node];
  for (size_t step = 0; step < cuts.size(); ++step) {
    const auto found = reduce.find(cuts[step]);
    if (found == reduce.end()) continue;
    TOFU_CHECK_USER(reduction.steps.empty() || reduction.reduce == found->second,
                    Blame::kPlan)
        << Where(graph, node) << ": the plan splits variables of output " << output
        << " that are reduced by different operations, expected one operation";
    reduction.steps.push_back(static_cast<int>(step));
    reduction.reduce = found->second;
    if (found->second == Reducer::kWeighted)
      reduction.weights = row->outputs[output].weights;
  }
  return reduction;
}

Attrs WithoutTofuAttrs(const Attrs& attrs) {
  constexpr char kPrefix[] = "__tofu_";
  Attrs kept = attrs;
  for (const auto& [key, value] : attrs) {
    if (key.rfind(kPrefix, 0) == 0) kept.erase(key);
  }
  return kept;
}

}  // namespace tofu
