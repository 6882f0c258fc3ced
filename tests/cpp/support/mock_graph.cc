#include "support/mock_graph.h"

#include <utility>

#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

IndexVar InputVar(const std::string& name, int slot, int dim) {
  return {name, IndexVar::Extent::kInput, slot, dim, 0};
}

IndexVar OutputVar(const std::string& name, int slot, int dim) {
  return {name, IndexVar::Extent::kOutput, slot, dim, 0};
}

// A row with one variable per dimension of input 0, at which it touches input and output.
StrategyRow PointwiseRow(const std::string& op, int rank) {
  StrategyRow row;
  row.op = op;
  for (int d = 0; d < rank; ++d) {
    row.vars.push_back(InputVar("i" + std::to_string(d), 0, d));
    row.splittable.push_back(d);
  }
  return row;
}

std::vector<DimAccess> AtVars(const std::vector<int>& vars) {
  std::vector<DimAccess> dims;
  for (int var : vars) dims.push_back(AtVar(var));
  return dims;
}

std::vector<int> Iota(int n) {
  std::vector<int> numbers;
  for (int i = 0; i < n; ++i) numbers.push_back(i);
  return numbers;
}

AttrRewrite ConstAttr(const std::string& name, std::vector<int> vars,
                      const std::string& text) {
  AttrRewrite attr;
  attr.name = name;
  attr.vars = std::move(vars);
  attr.text = text;
  return attr;
}

// x*stride + k - pad for x = var, k from `lo` to `hi` (variables or constants).
DimAccess WindowAccess(int x, int stride, int pad) {
  DimAccess access;
  access.whole = false;
  access.lo.terms = {{x, false, stride}};
  access.lo.constant = -pad;
  access.hi.terms = {{x, true, stride}};
  access.hi.constant = -pad;
  return access;
}

}  // namespace

DimAccess AtVar(int var, int64_t coef, int64_t shift) {
  DimAccess access;
  access.whole = false;
  access.lo.terms = {{var, false, coef}};
  access.lo.constant = shift;
  access.hi.terms = {{var, true, coef}};
  access.hi.constant = shift + coef - 1;
  return access;
}

NodeEntry MockGraph::Add(const std::string& op, const std::vector<NodeEntry>& inputs,
                         const std::vector<Shape>& shapes,
                         const std::map<std::string, std::string>& attrs,
                         const StrategyRow* row) {
  const int number = graph.num_nodes();
  Node node;
  node.op = op;
  node.name = op + std::to_string(number);
  node.attrs = attrs;
  node.inputs = inputs;
  node.num_outputs = static_cast<int>(shapes.size());
  graph.nodes.push_back(node);
  graph.first_entry.push_back(graph.first_entry.back() + node.num_outputs);
  for (const Shape& shape : shapes) {
    graph.shapes.push_back(shape);
    graph.dtypes.push_back(dtype_);
  }
  table.node_rows.push_back(row == nullptr ? -1 : static_cast<int>(table.rows.size()));
  if (row != nullptr) table.rows.push_back(*row);
  return {number, 0};
}

NodeEntry MockGraph::Variable(const std::string& name, const Shape& shape) {
  const NodeEntry entry = Add(
      "", {}, {shape}, {{"__tofu_role__", "parameter"}, {"__lr_mult__", "2"}}, nullptr);
  graph.nodes[entry.node].name = name;
  return entry;
}

NodeEntry MockGraph::Elementwise(const std::string& op,
                                 const std::vector<NodeEntry>& inputs) {
  const int rank = static_cast<int>(shape(inputs[0]).size());
  StrategyRow row = PointwiseRow(op, rank);
  row.elementwise = true;
  row.random = op == "noise";
  row.outputs = {{AtVars(Iota(rank)), {}}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    row.inputs.push_back({AtVars(Iota(rank)), {}, {}});
  }
  if (op == "add") AddTerms(&row);
  return Add(op, inputs, {shape(inputs[0])}, {{"__tofu_mark__", "1"}}, &row);
}

NodeEntry MockGraph::Noise(const Shape& shape) {
  const int rank = static_cast<int>(shape.size());
  StrategyRow row;
  row.op = "noise";
  for (int d = 0; d < rank; ++d) {
    row.vars.push_back(OutputVar("i" + std::to_string(d), 0, d));
    row.splittable.push_back(d);
  }
  row.elementwise = true;
  row.random = true;
  row.outputs = {{AtVars(Iota(rank)), {}}};
  return Add("noise", {}, {shape}, {}, &row);
}

NodeEntry MockGraph::Filled(const Shape& shape, const std::string& value) {
  const int rank = static_cast<int>(shape.size());
  StrategyRow row;
  row.op = "_full";
  for (int d = 0; d < rank; ++d) {
    row.vars.push_back(OutputVar("i" + std::to_string(d), 0, d));
    row.splittable.push_back(d);
  }
  row.outputs = {{AtVars(Iota(rank)), {}}};
  AttrRewrite rewrite;
  rewrite.name = "shape";
  rewrite.vars = Iota(rank);
  rewrite.kind = AttrRewrite::Kind::kOutputShape;
  row.attrs = {rewrite};
  return Add("_full", {}, {shape}, {{"shape", TupleText(shape)}, {"value", value}}, &row);
}

NodeEntry MockGraph::ReduceAxis(const std::string& op, NodeEntry in, int axis) {
  const std::map<std::string, Reducer> reducers = {{"sum_axis", Reducer::kSum},
                                                   {"prod_axis", Reducer::kProd},
                                                   {"max_axis", Reducer::kMax},
                                                   {"min_axis", Reducer::kMin}};
  Shape reduced = shape(in);
  const int rank = static_cast<int>(reduced.size());
  StrategyRow row = PointwiseRow(op, rank);
  row.inputs = {{AtVars(Iota(rank)), {}, {}}};
  std::vector<int> kept = Iota(rank);
  kept.erase(kept.begin() + axis);
  row.outputs = {{AtVars(kept), {{axis, reducers.at(op)}}}};
  reduced.erase(reduced.begin() + axis);
  return Add(op, {in}, {reduced}, {{"axis", std::to_string(axis)}}, &row);
}

NodeEntry MockGraph::Moments(NodeEntry in) {
  StrategyRow row = PointwiseRow("moments", 2);
  row.inputs = {{AtVars({0, 1}), {}, {}}};
  row.outputs = {{AtVars({1}), {{0, Reducer::kSum}}},
                 {AtVars({1}), {{0, Reducer::kMax}}},
                 {AtVars({0, 1}), {}}};
  const Shape columns = {shape(in)[1]};
  return Add("moments", {in}, {columns, columns, shape(in)}, {}, &row);
}

NodeEntry MockGraph::FullyConnected(NodeEntry x, NodeEntry w, NodeEntry bias) {
  StrategyRow row;
  row.op = "fully_connected";
  row.vars = {InputVar("b", 0, 0), OutputVar("o", 0, 1), InputVar("i", 1, 1)};
  row.splittable = {0, 1, 2};
  row.outputs = {{AtVars({0, 1}), {{2, Reducer::kSum}}}};
  row.inputs = {
      {AtVars({0, 2}), {}, {}}, {AtVars({1, 2}), {}, {}}, {AtVars({1}), {2}, {}}};
  AttrRewrite hidden;
  hidden.name = "num_hidden";
  hidden.vars = {1};
  hidden.kind = AttrRewrite::Kind::kSize;
  hidden.sizes = {1};
  row.attrs = {hidden};
  const int64_t outputs = shape(w)[0];
  return Add(row.op, {x, w, bias}, {{shape(x)[0], outputs}},
             {{"num_hidden", std::to_string(outputs)}}, &row);
}

NodeEntry MockGraph::Conv1d(NodeEntry data, NodeEntry filters, int stride, int pad) {
  enum { kB, kCo, kX, kCi, kDx };
  StrategyRow row;
  row.op = "conv1d";
  row.vars = {InputVar("b", 0, 0), OutputVar("co", 0, 1), OutputVar("x", 0, 2),
              InputVar("ci", 0, 1), InputVar("dx", 1, 2)};
  row.splittable = {kB, kCo, kX, kCi, kDx};
  row.outputs = {{AtVars({kB, kCo, kX}), {{kCi, Reducer::kSum}, {kDx, Reducer::kSum}}}};
  DimAccess window = WindowAccess(kX, stride, pad);
  window.lo.terms.push_back({kDx, false, 1});
  window.hi.terms.push_back({kDx, true, 1});
  row.inputs = {{{AtVar(kB), AtVar(kCi), window}, {}, Padding{{kX, kDx}, "0"}},
                {AtVars({kCo, kCi, kDx}), {}, {}}};
  row.attrs = {ConstAttr("pad", {kX, kDx}, "0")};
  const int64_t x = (shape(data)[2] + 2 * pad - shape(filters)[2]) / stride + 1;
  return Add(row.op, {data, filters}, {{shape(data)[0], shape(filters)[0], x}},
             {{"stride", std::to_string(stride)}, {"pad", std::to_string(pad)}}, &row);
}

NodeEntry MockGraph::MaxPool1d(NodeEntry data, int window, int stride, int pad) {
  StrategyRow row;
  row.op = "max_pool1d";
  row.vars = {InputVar("b", 0, 0), InputVar("c", 0, 1), OutputVar("x", 0, 2)};
  row.splittable = {0, 1, 2};
  row.outputs = {{AtVars({0, 1, 2}), {}}};
  DimAccess access = WindowAccess(2, stride, pad);
  access.hi.constant += window - 1;
  row.inputs = {{{AtVar(0), AtVar(1), access}, {}, Padding{{2}, "-inf"}}};
  row.attrs = {ConstAttr("pad", {2}, "0")};
  const int64_t x = (shape(data)[2] + 2 * pad - window) / stride + 1;
  return Add(row.op, {data}, {{shape(data)[0], shape(data)[1], x}},
             {{"window", std::to_string(window)},
              {"stride", std::to_string(stride)},
              {"pad", std::to_string(pad)}},
             &row);
}

NodeEntry MockGraph::BroadcastRows(NodeEntry in, int64_t rows) {
  StrategyRow row;
  row.op = "broadcast_rows";
  row.vars = {OutputVar("m", 0, 0), OutputVar("n", 0, 1)};
  row.splittable = {0, 1};
  row.outputs = {{AtVars({0, 1}), {}}};
  row.inputs = {{AtVars({1}), {}, {}}};
  AttrRewrite attr;
  attr.name = "shape";
  attr.vars = {0, 1};
  attr.kind = AttrRewrite::Kind::kOutputShape;
  row.attrs = {attr};
  const int64_t columns = shape(in)[0];
  return Add(
      row.op, {in}, {{rows, columns}},
      {{"shape", "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")"}},
      &row);
}

NodeEntry MockGraph::Flatten(NodeEntry in) {
  const int64_t columns = shape(in)[1];
  StrategyRow row;
  row.op = "flatten";
  row.vars = {InputVar("r", 0, 0)};
  row.splittable = {0};
  row.inputs = {{{AtVar(0), DimAccess()}, {}, {}}};
  row.outputs = {{{AtVar(0, columns)}, {}}};
  return Add(row.op, {in}, {{shape(in)[0] * columns}}, {}, &row);
}

NodeEntry MockGraph::SecondHalf(NodeEntry in) {
  const int64_t half = shape(in)[0] / 2;
  StrategyRow row;
  row.op = "second_half";
  row.vars = {OutputVar("i", 0, 0)};
  row.splittable = {0};
  row.inputs = {{{AtVar(0, 1, half)}, {}, {}}};
  row.outputs = {{AtVars({0}), {}}};
  // A split part's region has nothing left to crop; an unsplit part's is whole.
  row.attrs = {ConstAttr("begin", {0}, "0")};
  return Add(row.op, {in}, {{half}}, {{"begin", std::to_string(half)}}, &row);
}

NodeEntry MockGraph::Undescribed(NodeEntry in) {
  return Add("reverse", {in}, {shape(in)}, {}, nullptr);
}

void MockGraph::Head(NodeEntry entry, const std::string& role) {
  graph.heads.push_back(entry);
  graph.head_roles.push_back(role);
}

}  // namespace tofu
