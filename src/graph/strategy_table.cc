#include "graph/strategy_table.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "graph/box.h"

namespace tofu {
namespace {

constexpr char kTableName[] = "strategy table";
constexpr char kTableFormat[] = "tofu-strategy-table";
constexpr char kTableHint[] = "make it again with this version of tofu";
// Keeps sums of coef * bound within int64 for tensors of up to 2^34 elements.
constexpr int64_t kMaxCoefficient = int64_t{1} << 20;
constexpr int64_t kMaxConstant = int64_t{1} << 54;
constexpr int64_t kMaxExtent = int64_t{1} << 34;
constexpr int kMaxTerms = 64;

// --- One row -----------------------------------------------------------------

AffineForm ReadForm(const JsonCursor& cursor, int num_vars) {
  AffineForm form;
  const JsonCursor terms = cursor.At("terms");
  if (terms.Size() > kMaxTerms) terms.Fail("at most 64 terms");
  for (int i = 0; i < terms.Size(); ++i) {
    const JsonCursor term = terms.At(i);
    if (term.Size() != 3) term.Fail("[variable, bound, coefficient]");
    form.terms.push_back({term.At(0).Index(num_vars), term.At(1).Index(2) == 1,
                          term.At(2).Int(-kMaxCoefficient, kMaxCoefficient)});
  }
  if (cursor.Has("const")) {
    form.constant = cursor.At("const").Int(-kMaxConstant, kMaxConstant);
  }
  if (cursor.Has("div")) form.divisor = cursor.At("div").Int(1, kMaxConstant);
  return form;
}

std::vector<DimAccess> ReadDims(const JsonCursor& cursor, int num_vars) {
  std::vector<DimAccess> dims(static_cast<size_t>(cursor.Size()));
  for (size_t d = 0; d < dims.size(); ++d) {
    const JsonCursor dim = cursor.At(static_cast<int>(d));
    if (dim.IsNull()) continue;
    dims[d].whole = false;
    dims[d].lo = ReadForm(dim.At("lo"), num_vars);
    dims[d].hi = ReadForm(dim.At("hi"), num_vars);
  }
  return dims;
}

// Reads a variable's number from the key of an object: "2".
int ReadVarKey(const JsonCursor& object, const std::string& key, int num_vars) {
  for (int v = 0; v < num_vars; ++v) {
    if (key == std::to_string(v)) return v;
  }
  object.Fail("keys that are variables' numbers below " + std::to_string(num_vars) +
              " (found \"" + key + "\")");
}

Reducer ReadReducer(const JsonCursor& cursor) {
  const std::string_view name = cursor.String();
  if (name == "sum") return Reducer::kSum;
  if (name == "max") return Reducer::kMax;
  if (name == "min") return Reducer::kMin;
  if (name == "prod") return Reducer::kProd;
  if (name == "logsumexp") return Reducer::kLogSumExp;
  if (name == "weighted") return Reducer::kWeighted;
  cursor.Fail("\"sum\", \"max\", \"min\", \"prod\", \"logsumexp\" or \"weighted\"");
}

Weights ReadWeights(const JsonCursor& cursor, int num_outputs, int rank) {
  return {cursor.At("output").Index(num_outputs), cursor.At("dims").Indices(rank)};
}

OutputAccess ReadOutput(const JsonCursor& cursor, int num_vars, int num_inputs,
                        int num_outputs) {
  OutputAccess output;
  output.dims = ReadDims(cursor.At("dims"), num_vars);
  if (cursor.Has("like")) output.like = cursor.At("like").Index(num_inputs);
  if (!cursor.Has("reduce")) return output;
  const JsonCursor reduce = cursor.At("reduce");
  for (std::string_view key : reduce.Keys("an object, variable to reducer")) {
    const Reducer reducer = ReadReducer(reduce.At(key));
    output.reduce[ReadVarKey(reduce, std::string(key), num_vars)] = reducer;
    if (reducer != Reducer::kWeighted || output.weights) continue;
    output.weights = ReadWeights(cursor.At("weights"), num_outputs,
                                 static_cast<int>(output.dims.size()));
  }
  return output;
}

// Reads a number or "-inf", kept as the text that an operator's attribute takes.
std::string ReadFill(const JsonCursor& cursor) {
  if (cursor.IsString()) return std::string(cursor.String());
  if (!cursor.IsNumber()) cursor.Fail("a number or a string such as \"-inf\"");
  return cursor.value().Dump();
}

InputAccess ReadInput(const JsonCursor& cursor, int num_vars) {
  InputAccess input;
  input.dims = ReadDims(cursor.At("dims"), num_vars);
  if (cursor.Has("only_first")) {
    input.only_first = cursor.At("only_first").Indices(num_vars);
  }
  if (cursor.Has("pad") && !cursor.At("pad").IsNull()) {
    const JsonCursor pad = cursor.At("pad");
    Padding padding;
    padding.vars = pad.At("vars").Indices(num_vars);
    if (pad.Has("fill")) padding.fill = ReadFill(pad.At("fill"));
    input.pad = padding;
  }
  return input;
}

IndexVar ReadVar(const JsonCursor& cursor) {
  constexpr int kMaxSlot = 1 << 20;
  IndexVar var;
  var.name = cursor.At("name").String();
  const JsonCursor extent = cursor.At("extent");
  if (extent.IsNumber()) {
    var.constant = extent.Int(1, kMaxExtent);
    return var;
  }
  if (extent.Size() != 3) extent.Fail("[\"input\" or \"output\", slot, dimension]");
  const std::string_view kind = extent.At(0).String();
  if (kind != "input" && kind != "output") extent.Fail("\"input\" or \"output\" first");
  var.kind = kind == "input" ? IndexVar::Extent::kInput : IndexVar::Extent::kOutput;
  var.slot = extent.At(1).Index(kMaxSlot);
  var.dim = extent.At(2).Index(kMaxSlot);
  return var;
}

AttrRewrite ReadAttr(const JsonCursor& cursor, int num_vars, int num_outputs) {
  constexpr int kMaxTimes = 1 << 20;
  AttrRewrite attr;
  attr.name = cursor.At("name").String();
  attr.vars = cursor.At("vars").Indices(num_vars);
  const JsonCursor value = cursor.At("value");
  if (value.Has("size")) {
    attr.kind = AttrRewrite::Kind::kSize;
    attr.sizes.push_back(value.At("size").Index(num_vars));
    if (value.Has("times")) attr.times = value.At("times").Index(kMaxTimes);
  } else if (value.Has("sizes")) {
    attr.kind = AttrRewrite::Kind::kSizes;
    attr.sizes = value.At("sizes").Indices(num_vars);
  } else if (value.Has("begin")) {
    attr.kind = AttrRewrite::Kind::kBegin;
    attr.sizes.push_back(value.At("begin").Index(num_vars));
  } else if (value.Has("const")) {
    attr.kind = AttrRewrite::Kind::kConst;
    attr.text = value.At("const").String();
  } else if (value.Has("output_shape")) {
    attr.kind = AttrRewrite::Kind::kOutputShape;
    attr.output = value.At("output_shape").Index(num_outputs);
  } else {
    value.Fail("\"size\", \"sizes\", \"begin\", \"const\" or \"output_shape\"");
  }
  return attr;
}

StrategyRow ReadRow(const JsonCursor& cursor) {
  StrategyRow row;
  row.op = cursor.At("op").String();
  if (cursor.Has("source")) row.source = cursor.At("source").String();
  if (cursor.Has("elementwise")) row.elementwise = cursor.At("elementwise").Bool();
  if (cursor.Has("random")) row.random = cursor.At("random").Bool();
  if (cursor.Has("light")) row.light = cursor.At("light").Bool();
  if (cursor.Has("views")) row.views = cursor.At("views").Bool();
  const JsonCursor vars = cursor.At("vars");
  for (int i = 0; i < vars.Size(); ++i) row.vars.push_back(ReadVar(vars.At(i)));
  const int num_vars = vars.Size();
  row.splittable = cursor.At("splittable").Indices(num_vars);
  const JsonCursor outputs = cursor.At("outputs");
  const JsonCursor inputs = cursor.At("inputs");
  for (int i = 0; i < outputs.Size(); ++i) {
    row.outputs.push_back(
        ReadOutput(outputs.At(i), num_vars, inputs.Size(), outputs.Size()));
  }
  for (int i = 0; i < inputs.Size(); ++i) {
    row.inputs.push_back(ReadInput(inputs.At(i), num_vars));
  }
  if (cursor.Has("attrs")) {
    const JsonCursor attrs = cursor.At("attrs");
    for (int i = 0; i < attrs.Size(); ++i) {
      row.attrs.push_back(ReadAttr(attrs.At(i), num_vars, outputs.Size()));
    }
  }
  if (cursor.Has("linear") && cursor.At("linear").Bool()) AddTerms(&row);
  return row;
}

// --- Row against node ----------------------------------------------------------

[[noreturn]] void FailFit(const Graph& graph, int node, const StrategyRow& row,
                          const std::string& what) {
  throw UserError(Blame::kTable, std::string(kTableName) + ": node \"" +
                                     graph.nodes[static_cast<size_t>(node)].name +
                                     "\", row of \"" + row.op + "\": " + what + "; " +
                                     "make the table from exactly this graph");
}

void CheckSlot(const Graph& graph, int node, const StrategyRow& row,
               const std::string& slot, const std::vector<DimAccess>& dims,
               const Shape& shape) {
  if (dims.size() == shape.size()) return;
  FailFit(graph, node, row,
          slot + ": found " + std::to_string(dims.size()) + " dimensions, expected " +
              std::to_string(shape.size()) + " as the tensor has");
}

void CheckVar(const Graph& graph, int node, const StrategyRow& row, const IndexVar& var) {
  if (var.kind != IndexVar::Extent::kInput && var.kind != IndexVar::Extent::kOutput) {
    return;
  }
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  const bool input = var.kind == IndexVar::Extent::kInput;
  const int slots = input ? static_cast<int>(n.inputs.size()) : n.num_outputs;
  const std::string where = "extent of variable \"" + var.name + "\": ";
  if (var.slot >= slots) {
    FailFit(graph, node, row,
            where + "found slot " + std::to_string(var.slot) + ", expected less than " +
                std::to_string(slots));
  }
  const NodeEntry entry =
      input ? n.inputs[static_cast<size_t>(var.slot)] : NodeEntry{node, var.slot};
  const size_t rank = graph.shape(entry).size();
  if (static_cast<size_t>(var.dim) >= rank) {
    FailFit(graph, node, row,
            where + "found dimension " + std::to_string(var.dim) +
                ", expected less than " + std::to_string(rank));
  }
}

void CheckFit(const Graph& graph, int node, const StrategyRow& row) {
  const Node& n = graph.nodes[static_cast<size_t>(node)];
  if (n.is_variable()) FailFit(graph, node, row, "found a row, expected -1 (a variable)");
  if (row.inputs.size() > n.inputs.size()) {
    FailFit(graph, node, row,
            "found " + std::to_string(row.inputs.size()) + " inputs, expected at most " +
                std::to_string(n.inputs.size()));
  }
  if (row.outputs.size() > static_cast<size_t>(n.num_outputs)) {
    FailFit(graph, node, row,
            "found " + std::to_string(row.outputs.size()) +
                " outputs, expected at most " + std::to_string(n.num_outputs));
  }
  for (const IndexVar& var : row.vars) CheckVar(graph, node, row, var);
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    CheckSlot(graph, node, row, "input " + std::to_string(i), row.inputs[i].dims,
              graph.shape(n.inputs[i]));
  }
  for (size_t i = 0; i < row.outputs.size(); ++i) {
    CheckSlot(graph, node, row, "output " + std::to_string(i), row.outputs[i].dims,
              graph.shape({node, static_cast<int>(i)}));
  }
}

// Whether a row says that no node reads this entry.
bool IsUnread(const StrategyTable& table, NodeEntry entry) {
  const StrategyRow* row = table.row(entry.node);
  return row != nullptr && entry.index < static_cast<int>(row->outputs.size()) &&
         row->outputs[static_cast<size_t>(entry.index)].like >= 0;
}

[[noreturn]] void FailUnread(const Graph& graph, const StrategyTable& table,
                             NodeEntry entry, const std::string& reader) {
  FailFit(graph, entry.node, *table.row(entry.node),
          "output " + std::to_string(entry.index) + ": found " + reader +
              " reading it, expected no reader: the description calls it unread");
}

}  // namespace

void AddTerms(StrategyRow* row) {
  row->terms = static_cast<int>(row->vars.size());
  row->vars.push_back({kTermsName, IndexVar::Extent::kTerms});
  for (OutputAccess& output : row->outputs) output.reduce[row->terms] = Reducer::kSum;
  for (InputAccess& input : row->inputs) input.only_first.push_back(row->terms);
}

StrategyTable ReadStrategyTable(const std::string& json, const Graph& graph) {
  const JsonDocument document = ParseJson(json, Blame::kTable, kTableName, kTableHint);
  const JsonCursor root(document);
  if (root.At("format").String() != kTableFormat) {
    root.At("format").Fail(std::string("\"") + kTableFormat + "\"");
  }
  root.At("version").Int(kStrategyTableVersion, kStrategyTableVersion);
  StrategyTable table;
  const JsonCursor rows = root.At("rows");
  for (int i = 0; i < rows.Size(); ++i) table.rows.push_back(ReadRow(rows.At(i)));
  const JsonCursor nodes = root.At("nodes");
  if (nodes.Size() != graph.num_nodes()) {
    nodes.Fail("an array of " + std::to_string(graph.num_nodes()) +
               ", one row per node of the graph");
  }
  for (int i = 0; i < nodes.Size(); ++i) {
    const int row = static_cast<int>(nodes.At(i).Int(-1, rows.Size() - 1));
    table.node_rows.push_back(row);
    if (row >= 0) CheckFit(graph, i, table.rows[static_cast<size_t>(row)]);
  }
  for (const Node& node : graph.nodes) {
    for (NodeEntry input : node.inputs) {
      if (!IsUnread(table, input)) continue;
      FailUnread(graph, table, input, "node \"" + node.name + "\"");
    }
  }
  for (NodeEntry head : graph.heads) {
    if (IsUnread(table, head)) FailUnread(graph, table, head, "a head");
  }
  return table;
}

}  // namespace tofu
