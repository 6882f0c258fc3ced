#include "graph/plan_json.h"

#include <utility>

#include "base/error.h"
#include "graph/box.h"

namespace tofu {
namespace {

int ReadVarName(const JsonCursor& cursor, const StrategyRow* row) {
  if (cursor.IsNull()) return kReplicated;
  if (row == nullptr) cursor.Fail("null: the operator is not described");
  for (int var : row->splittable) {
    if (row->vars[var].name == cursor.String()) return var;
  }
  if (row->terms >= 0 && cursor.String() == row->vars[row->terms].name) return row->terms;
  cursor.Fail("null or the name of a variable that " + row->op + " can be split along");
}

constexpr int64_t kMostMultiple = 1 << 20;

void CheckNumberOfSteps(const JsonCursor& cursor, const std::vector<int>& parts) {
  if (cursor.Size() != static_cast<int>(parts.size())) {
    cursor.Fail("an array of " + std::to_string(parts.size()) + ", one cut per step");
  }
}

}  // namespace

std::string DumpJson(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void CheckHeader(const JsonCursor& root, const std::string& format, int version,
                 const Graph& graph) {
  if (root.At("format").String() != format) root.At("format").Fail('"' + format + '"');
  root.At("version").Int(version, version);
  const std::string hash = GraphHash(graph);
  if (root.At("graph_hash").String() != hash) {
    root.At("graph_hash").Fail("\"" + hash + "\": the plan is for another graph");
  }
}

std::vector<int> ReadParts(const JsonCursor& root) {
  const JsonCursor cursor = root.At("parts");
  std::vector<int> parts;
  int64_t workers = 1;
  for (int i = 0; i < cursor.Size(); ++i) {
    parts.push_back(static_cast<int>(cursor.At(i).Int(2, kMaxWorkers)));
    workers *= parts.back();
    if (workers > kMaxWorkers) {
      cursor.Fail("at most " + std::to_string(kMaxWorkers) + " workers in all");
    }
  }
  root.At("workers").Int(workers, workers);
  return parts;
}

TileShares ReadShares(const JsonCursor& root, const std::vector<int>& parts) {
  TileShares shares;
  if (root.Has("tile_multiple")) {
    shares.multiple = static_cast<int>(root.At("tile_multiple").Int(1, kMostMultiple));
  }
  if (!root.Has("shares")) return shares;
  const JsonCursor steps = root.At("shares");
  if (steps.Size() != static_cast<int>(parts.size())) {
    steps.Fail("an array of " + std::to_string(parts.size()) +
               ", shares or null per step");
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonCursor step = steps.At(static_cast<int>(i));
    std::vector<int>& of_step = shares.of_steps.emplace_back();
    if (step.IsNull()) continue;
    if (step.Size() != parts[i]) {
      step.Fail("null or an array of " + std::to_string(parts[i]) +
                ", one share per part");
    }
    for (int part = 0; part < step.Size(); ++part) {
      of_step.push_back(static_cast<int>(step.At(part).Int(1, kMostShares / parts[i])));
    }
  }
  return Normal(std::move(shares));
}

const char* StatusText(PlanStatus status) {
  switch (status) {
    case PlanStatus::kOptimal:
      return "optimal";
    case PlanStatus::kStepsOptimal:
      return "steps-optimal";
    default:
      return "feasible";
  }
}

PlanStatus ReadStatus(const JsonCursor& root) {
  const std::string_view status = root.At("status").String();
  for (PlanStatus known :
       {PlanStatus::kOptimal, PlanStatus::kStepsOptimal, PlanStatus::kFeasible}) {
    if (status == StatusText(known)) return known;
  }
  root.At("status").Fail("\"optimal\", \"steps-optimal\" or \"feasible\"");
}

Cuts ReadTensorCuts(const JsonCursor& cursor, const Shape& shape,
                    const std::vector<int>& parts, bool may_wait) {
  CheckNumberOfSteps(cursor, parts);
  CutExtents extents(shape);
  Cuts cuts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonCursor cut = cursor.At(static_cast<int>(i));
    if (cut.IsString() && cut.String() == kTermsName) {
      if (!may_wait) {
        cut.Fail("a dimension or -1: variables and heads are no terms of a sum");
      }
      cuts.push_back(kTerms);
      continue;
    }
    cuts.push_back(static_cast<int>(cut.Int(-1, static_cast<int64_t>(shape.size()) - 1)));
    if (cuts.back() == kReplicated) continue;
    if (!extents.CanCut(cuts.back(), parts[i])) {
      cut.Fail("a dimension with at least " + std::to_string(parts[i]) +
               " elements left at this step, or -1");
    }
    extents.Cut(cuts.back(), parts[i]);
  }
  return cuts;
}

OrderedJson TensorCutJson(int cut) {
  return cut == kTerms ? OrderedJson(kTermsName) : OrderedJson(cut);
}

OrderedJson OperatorCutsJson(const StrategyRow* row, const Cuts& cuts) {
  OrderedJson names = OrderedJson::array();
  for (int var : cuts) {
    names.push_back(var == kReplicated ? OrderedJson()
                                       : OrderedJson(row->vars[var].name));
  }
  return names;
}

Cuts ReadOperatorCuts(const JsonCursor& cursor, const Graph& graph, int node,
                      const StrategyTable& table, const std::vector<int>& parts) {
  CheckNumberOfSteps(cursor, parts);
  const StrategyRow* row = table.row(node);
  Shape whole;
  for (size_t v = 0; row != nullptr && v < row->vars.size(); ++v) {
    whole.push_back(VarExtent(*row, static_cast<int>(v), graph, node));
  }
  CutExtents extents(std::move(whole));
  Cuts cuts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const JsonCursor cut = cursor.At(static_cast<int>(i));
    cuts.push_back(ReadVarName(cut, row));
    if (cuts.back() == kReplicated) continue;
    if (!extents.CanCut(cuts.back(), parts[i])) {
      cut.Fail("a variable with at least " + std::to_string(parts[i]) +
               " values left at this step, or null");
    }
    extents.Cut(cuts.back(), parts[i]);
  }
  return cuts;
}

}  // namespace tofu
