#include "support/example_graphs.h"

#include <utility>

namespace tofu {
namespace {

// The index of variable v, exactly.
DimAccess At(int v) { return {false, {{{v, false, 1}}, 0, 1}, {{{v, true, 1}}, 0, 1}}; }

std::vector<DimAccess> Whole(size_t rank) { return std::vector<DimAccess>(rank); }

IndexVar OfInput(const std::string& name, int slot, int dim) {
  return {name, IndexVar::Extent::kInput, slot, dim, 0};
}
IndexVar OfOutput(const std::string& name, int dim) {
  return {name, IndexVar::Extent::kOutput, 0, dim, 0};
}

std::vector<DimAccess> Matrix(int row, int column, bool transposed) {
  return transposed ? std::vector<DimAccess>{At(column), At(row)}
                    : std::vector<DimAccess>{At(row), At(column)};
}

}  // namespace

int64_t ExampleGraph::Extent(NodeEntry entry, int dim) const {
  return graph_.shapes[graph_.first_entry[entry.node] + entry.index][dim];
}

NodeEntry ExampleGraph::Add(const std::string& op, const std::string& name,
                            const std::vector<NodeEntry>& inputs,
                            const std::vector<Shape>& outputs, StrategyRow row,
                            const std::map<std::string, std::string>& attrs) {
  Node node;
  node.op = op;
  node.name = name;
  node.inputs = inputs;
  node.attrs = attrs;
  node.num_outputs = static_cast<int>(outputs.size());
  if (op.empty() || op == "opaque") {
    table_.node_rows.push_back(-1);
  } else {
    // One row for all nodes of one kind, as in real tables.
    std::string kind = op + ' ' + std::to_string(inputs.size()) + ' ' +
                       std::to_string(outputs.size()) + ' ' +
                       std::to_string(outputs[0].size());
    for (const auto& [key, value] : attrs) kind += ' ' + key + '=' + value;
    const int next = static_cast<int>(table_.rows.size());
    const auto [it, is_new] = rows_.emplace(kind, next);
    table_.node_rows.push_back(it->second);
    row.op = op;
    if (is_new) table_.rows.push_back(std::move(row));
  }
  graph_.nodes.push_back(std::move(node));
  for (const Shape& shape : outputs) {
    graph_.shapes.push_back(shape);
    graph_.dtypes.push_back(dtype_);
  }
  IndexEntries(&graph_);
  return {graph_.num_nodes() - 1, 0};
}

NodeEntry ExampleGraph::Variable(const std::string& name, const Shape& shape,
                                 const std::string& role) {
  std::map<std::string, std::string> attrs;
  if (!role.empty()) attrs["__tofu_role__"] = role;
  return Add("", name, {}, {shape}, {}, attrs);
}

NodeEntry ExampleGraph::MatMul(const std::string& name, NodeEntry a, NodeEntry b,
                               bool transpose_a, bool transpose_b) {
  StrategyRow row;
  row.vars = {OfInput("i", 0, transpose_a ? 1 : 0), OfInput("j", 1, transpose_b ? 0 : 1),
              OfInput("k", 0, transpose_a ? 0 : 1)};
  row.splittable = {0, 1, 2};
  row.inputs = {{Matrix(0, 2, transpose_a), {}, {}}, {Matrix(2, 1, transpose_b), {}, {}}};
  row.outputs = {{Matrix(0, 1, false), {{2, Reducer::kSum}}}};
  return Add("dot", name, {a, b},
             {{Extent(a, transpose_a ? 1 : 0), Extent(b, transpose_b ? 0 : 1)}}, row,
             {{"transpose_a", transpose_a ? "1" : "0"},
              {"transpose_b", transpose_b ? "1" : "0"}});
}

NodeEntry ExampleGraph::Elementwise(const std::string& name,
                                    const std::vector<NodeEntry>& inputs,
                                    const std::string& op, int num_outputs) {
  const Shape shape = graph_.shape(inputs[0]);
  StrategyRow row;
  row.elementwise = true;
  row.random = op == "Dropout";
  std::vector<DimAccess> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    row.vars.push_back(OfOutput("x" + std::to_string(d), static_cast<int>(d)));
    row.splittable.push_back(static_cast<int>(d));
    dims.push_back(At(static_cast<int>(d)));
  }
  row.inputs.assign(inputs.size(), {dims, {}, {}});
  row.outputs.assign(static_cast<size_t>(num_outputs), {dims, {}});
  return Add(op, name, inputs, std::vector<Shape>(row.outputs.size(), shape), row);
}

NodeEntry ExampleGraph::Dropout(const std::string& name, NodeEntry x) {
  return Elementwise(name, {x}, "Dropout");
}

NodeEntry ExampleGraph::AddBias(const std::string& name, NodeEntry x, NodeEntry bias) {
  StrategyRow row;
  row.vars = {OfOutput("i", 0), OfOutput("j", 1)};
  row.splittable = {0, 1};
  row.inputs = {{{At(0), At(1)}, {}, {}}, {{At(1)}, {}, {}}};
  row.outputs = {{{At(0), At(1)}, {}}};
  return Add("broadcast_add", name, {x, bias}, {graph_.shape(x)}, row);
}

NodeEntry ExampleGraph::Dense(const std::string& name, NodeEntry x, NodeEntry w,
                              NodeEntry bias) {
  StrategyRow row;
  row.vars = {OfInput("i", 0, 0), OfInput("j", 1, 1), OfInput("k", 0, 1)};
  row.splittable = {0, 1, 2};
  row.inputs = {{{At(0), At(2)}, {}, {}}, {{At(2), At(1)}, {}, {}}, {{At(1)}, {2}, {}}};
  row.outputs = {{{At(0), At(1)}, {{2, Reducer::kSum}}}};
  return Add("dense", name, {x, w, bias}, {{Extent(x, 0), Extent(w, 1)}}, row);
}

NodeEntry ExampleGraph::SumRows(const std::string& name, NodeEntry x) {
  return ReduceRows(name, x, Reducer::kSum);
}

NodeEntry ExampleGraph::ReduceRows(const std::string& name, NodeEntry x,
                                   Reducer reducer) {
  static const std::map<Reducer, std::string> kOps = {{Reducer::kSum, "sum"},
                                                      {Reducer::kMax, "max"},
                                                      {Reducer::kMin, "min"},
                                                      {Reducer::kProd, "prod"}};
  StrategyRow row;
  row.vars = {OfInput("i", 0, 0), OfInput("j", 0, 1)};
  row.splittable = {1, 0};
  row.inputs = {{{At(0), At(1)}, {}, {}}};
  row.outputs = {{{At(1)}, {{0, reducer}}}};
  return Add(kOps.at(reducer), name, {x}, {{Extent(x, 1)}}, row);
}

std::vector<NodeEntry> ExampleGraph::Extremes(const std::string& name, NodeEntry x) {
  StrategyRow row;
  row.vars = {OfInput("i", 0, 0), OfInput("j", 0, 1)};
  row.splittable = {0, 1};
  row.inputs = {{{At(0), At(1)}, {}, {}}};
  row.outputs = {{{At(1)}, {{0, Reducer::kMax}}}, {{At(0)}, {{1, Reducer::kMin}}}};
  const NodeEntry first =
      Add("extremes", name, {x}, {{Extent(x, 1)}, {Extent(x, 0)}}, row);
  return {first, {first.node, 1}};
}

NodeEntry ExampleGraph::SumOfLargest(const std::string& name, NodeEntry x) {
  StrategyRow row;
  row.vars = {OfInput("i", 0, 0), OfInput("j", 0, 1)};
  row.splittable = {0, 1};
  row.inputs = {{{At(0), At(1)}, {}, {}}};
  row.outputs = {{{}, {{0, Reducer::kMax}, {1, Reducer::kSum}}}};
  return Add("sum_of_largest", name, {x}, {{}}, row);
}

NodeEntry ExampleGraph::Window(const std::string& name, NodeEntry in, int width,
                               int stride, int pad) {
  StrategyRow row;
  row.vars = {OfOutput("b", 0),
              OfOutput("x", 1),
              {"d", IndexVar::Extent::kConstant, 0, 0, width}};
  row.splittable = {0, 1};
  const DimAccess window = {false,
                            {{{1, false, stride}, {2, false, 1}}, -pad, 1},
                            {{{1, true, stride}, {2, true, 1}}, -pad, 1}};
  row.inputs = {{{At(0), window}, {}, {}}};
  if (pad > 0) row.inputs[0].pad = Padding{{1}, "0"};
  row.outputs = {{{At(0), At(1)}, {{2, Reducer::kSum}}}};
  return Add("window", name, {in},
             {{Extent(in, 0), (Extent(in, 1) + 2 * pad - width) / stride + 1}}, row,
             {{"width", std::to_string(width)},
              {"stride", std::to_string(stride)},
              {"pad", std::to_string(pad)}});
}

NodeEntry ExampleGraph::RowWise(const std::string& name,
                                const std::vector<NodeEntry>& inputs) {
  StrategyRow row;
  row.vars = {OfOutput("b", 0)};
  row.splittable = {0};
  const Shape shape = graph_.shape(inputs[0]);
  std::vector<DimAccess> dims = Whole(shape.size());
  dims[0] = At(0);
  row.inputs.assign(inputs.size(), {dims, {}, {}});
  row.outputs = {{dims, {}}};
  return Add("softmax", name, inputs, {shape}, row);
}

NodeEntry ExampleGraph::Opaque(const std::string& name,
                               const std::vector<NodeEntry>& inputs, const Shape& shape) {
  return Add("opaque", name, inputs, {shape}, {});
}

std::vector<NodeEntry> ExampleGraph::Split(const std::string& name, NodeEntry x,
                                           int parts) {
  const int64_t size = Extent(x, 1) / parts;
  StrategyRow row;
  row.vars = {OfOutput("i", 0), OfOutput("j", 1)};
  row.splittable = {0};
  row.inputs = {{{At(0), DimAccess()}, {}, {}}};
  row.outputs.assign(static_cast<size_t>(parts), {{At(0), At(1)}, {}});
  const NodeEntry first = Add(
      "split", name, {x}, std::vector<Shape>(row.outputs.size(), {Extent(x, 0), size}),
      row, {{"num_outputs", std::to_string(parts)}});
  std::vector<NodeEntry> outputs;
  for (int i = 0; i < parts; ++i) outputs.push_back({first.node, i});
  return outputs;
}

void ExampleGraph::Head(NodeEntry entry, const std::string& role) {
  graph_.heads.push_back(entry);
  graph_.head_roles.push_back(role);
}

void ExampleGraph::After(NodeEntry backward, NodeEntry forward) {
  graph_.nodes[backward.node].control_deps = {forward.node};
}

const Graph& ExampleGraph::graph() {
  IndexEntries(&graph_);
  return graph_;
}

ExampleGraph OneLayer(int64_t batch, int64_t in, int64_t out, bool trained) {
  ExampleGraph g;
  const NodeEntry x = g.Variable("x", {batch, in}, "data");
  const NodeEntry w = g.Variable("w", {in, out}, trained ? "parameter" : "data");
  const NodeEntry y = g.MatMul("y", x, w);
  const NodeEntry a = g.Elementwise("a", {y});
  const NodeEntry loss = g.RowWise("loss", {a});
  const NodeEntry ga = g.RowWise("ga", {a, loss});
  const NodeEntry gy = g.Elementwise("gy", {ga, y}, "_backward_relu");
  const NodeEntry gw = g.MatMul("gw", x, gy, true, false);
  const NodeEntry gx = g.MatMul("gx", gy, w, false, true);
  g.After(ga, loss);
  g.After(gy, a);
  g.After(gw, y);
  g.After(gx, y);
  g.Head(loss, "output");
  g.Head(gw, "gradient:w");
  g.Head(gx, "gradient:x");
  return g;
}

ExampleGraph Mlp(int64_t batch, int64_t width, int layers) {
  ExampleGraph g;
  NodeEntry x = g.Variable("data", {batch, width}, "data");
  struct Layer {
    NodeEntry x, w, y, z, a;
    std::string name;
  };
  std::vector<Layer> all;
  for (int i = 0; i < layers; ++i) {
    Layer l;
    l.name = "fc" + std::to_string(i);
    l.x = x;
    l.w = g.Variable(l.name + "_weight", {width, width}, "parameter");
    const NodeEntry bias = g.Variable(l.name + "_bias", {width}, "parameter");
    l.y = g.MatMul(l.name, x, l.w);
    l.z = g.AddBias(l.name + "_biased", l.y, bias);
    x = l.a = g.Elementwise(l.name + "_act", {l.z});
    all.push_back(l);
  }
  g.Head(x, "output");
  NodeEntry gradient = g.Variable("head_grad0", {batch, width}, "head_grad:0");
  for (size_t i = all.size(); i-- > 0;) {
    const Layer& l = all[i];
    const NodeEntry gz = g.Elementwise(l.name + "_dz", {gradient, l.z}, "_backward_relu");
    g.After(gz, l.a);
    const NodeEntry gb = g.SumRows(l.name + "_db", gz);
    g.After(gb, l.z);
    const NodeEntry gw = g.MatMul(l.name + "_dw", l.x, gz, true, false);
    g.After(gw, l.y);
    g.Head(gb, "gradient:" + l.name + "_bias");
    g.Head(gw, "gradient:" + l.name + "_weight");
    if (i == 0) break;
    gradient = g.MatMul(l.name + "_dx", gz, l.w, false, true);
    g.After(gradient, l.y);
  }
  return g;
}

ExampleGraph UnrolledRnn(int64_t batch, int64_t width, int steps) {
  ExampleGraph g;
  const NodeEntry wx = g.Variable("wx", {width, width}, "parameter");
  const NodeEntry wh = g.Variable("wh", {width, width}, "parameter");
  const NodeEntry xs = g.Variable("x", {batch, width * steps}, "data");
  const std::vector<NodeEntry> x = g.Split("steps", xs, steps);
  NodeEntry h = g.Variable("h0", {batch, width}, "data");
  struct Step {
    NodeEntry h_before, mx, mh, sum, h;
  };
  std::vector<Step> all;
  for (int t = 0; t < steps; ++t) {
    const std::string n = "t" + std::to_string(t);
    Step s;
    s.h_before = h;
    s.mx = g.MatMul(n + "_mx", x[t], wx);
    s.mh = g.MatMul(n + "_mh", h, wh);
    s.sum = g.Elementwise(n + "_sum", {s.mx, s.mh}, "add");
    s.h = h = g.Elementwise(n + "_h", {s.sum}, "tanh");
    all.push_back(s);
  }
  g.Head(h, "output");
  NodeEntry gh = g.Variable("head_grad0", {batch, width}, "head_grad:0");
  std::vector<NodeEntry> gwx;
  std::vector<NodeEntry> gwh;
  for (size_t t = all.size(); t-- > 0;) {
    const Step& s = all[t];
    const std::string n = "t" + std::to_string(t);
    const NodeEntry gs = g.Elementwise(n + "_ds", {gh, s.h}, "_backward_tanh");
    g.After(gs, s.h);
    gwx.push_back(g.MatMul(n + "_dwx", x[t], gs, true, false));
    g.After(gwx.back(), s.mx);
    gwh.push_back(g.MatMul(n + "_dwh", s.h_before, gs, true, false));
    g.After(gwh.back(), s.mh);
    if (t == 0) break;
    gh = g.MatMul(n + "_dh", gs, wh, false, true);
    g.After(gh, s.mh);
  }
  g.Head(gwx.size() == 1 ? gwx[0] : g.Elementwise("dwx", gwx, "add_n"), "gradient:wx");
  g.Head(gwh.size() == 1 ? gwh[0] : g.Elementwise("dwh", gwh, "add_n"), "gradient:wh");
  return g;
}

ExampleGraph Residual(int64_t batch, int64_t width, int blocks) {
  ExampleGraph g;
  NodeEntry x = g.Variable("data", {batch, width}, "data");
  for (int i = 0; i < blocks; ++i) {
    const std::string n = "block" + std::to_string(i);
    const NodeEntry w1 = g.Variable(n + "_w1", {width, 2 * width}, "parameter");
    const NodeEntry w2 = g.Variable(n + "_w2", {2 * width, width}, "parameter");
    const NodeEntry a = g.Elementwise(n + "_act", {g.MatMul(n + "_1", x, w1)});
    x = g.Elementwise(n + "_sum", {x, g.MatMul(n + "_2", a, w2)}, "add");
  }
  g.Head(x, "output");
  return g;
}

}  // namespace tofu
