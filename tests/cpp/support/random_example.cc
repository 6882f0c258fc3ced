// Random graphs for example_graphs.h.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/example_graphs.h"

namespace tofu {
namespace {

// Grows a graph by operators on its matrices; new operands are variables.
class ExampleGrower {
 public:
  explicit ExampleGrower(unsigned seed) : random_(seed) {}

  ExampleGraph Grow(int num_ops) {
    matrices_ = {Variable("v0", AnyShape(), "data"), Variable("v1", AnyShape(), "")};
    for (int i = 0; i < num_ops; ++i) AddOperator(std::to_string(i));
    for (NodeEntry m : matrices_) {
      if (Pick(2) == 0 || m.node == matrices_.back().node) graph_.Head(m, "output");
    }
    for (NodeEntry v : vectors_) {
      if (Pick(2) == 0) graph_.Head(v, "output");
    }
    for (const std::string& name : parameters_) AddGradient(name);
    return std::move(graph_);
  }

 private:
  // A random number below `count`, the same on every machine.
  size_t Pick(size_t count) { return static_cast<size_t>(random_() % count); }

  int64_t AnyExtent() {
    constexpr int64_t kExtents[] = {1, 2, 3, 4, 6, 8, 12, 24};
    return kExtents[Pick(8)];
  }
  Shape AnyShape() { return {AnyExtent(), AnyExtent()}; }

  const Shape& ShapeOf(NodeEntry entry) { return graph_.graph().shape(entry); }

  // A matrix of this shape.
  NodeEntry Like(const Shape& shape) {
    std::vector<NodeEntry> candidates;
    for (NodeEntry m : matrices_) {
      if (ShapeOf(m) == shape) candidates.push_back(m);
    }
    return candidates[Pick(candidates.size())];
  }

  // Half of all tensors are float32.
  void AnyDtype() {
    constexpr int kDtypes[] = {0, 0, 0, 0, 1, 2, 3, 6};
    graph_.SetDtype(kDtypes[Pick(8)]);
  }

  NodeEntry Variable(const std::string& name, const Shape& shape,
                     const std::string& role) {
    AnyDtype();
    if (role == "parameter") parameters_.push_back(name);
    const NodeEntry entry = graph_.Variable(name, shape, role);
    AnyDtype();
    return entry;
  }
  NodeEntry Weight(const std::string& name, const Shape& shape) {
    return Variable(name, shape, Pick(2) == 0 ? "parameter" : "");
  }

  void AddOperator(const std::string& number) {
    const std::string name = "op" + number;
    const NodeEntry x = matrices_[Pick(matrices_.size())];
    AnyDtype();
    if (Pick(3) == 0) return AddOther(number, x);
    const Shape s = ShapeOf(x);
    switch (Pick(8)) {
      case 0:
      case 1:
        matrices_.push_back(
            graph_.MatMul(name, x, Weight("w" + number, {s[1], AnyExtent()})));
        break;
      case 2:
        matrices_.push_back(graph_.MatMul(name, x, Like(s), true, false));
        break;
      case 3:
        matrices_.push_back(graph_.Elementwise(name, {x, Like(s)}, "add"));
        break;
      case 4:
        if (s[1] < 3) break;
        matrices_.push_back(graph_.Window(name, x, 3, 1 + static_cast<int>(Pick(2)),
                                          static_cast<int>(Pick(2))));
        break;
      case 5: {
        const NodeEntry bias = Weight("b" + number, {s[1]});
        const NodeEntry w = Weight("w" + number, {s[1], s[1]});
        matrices_.push_back(graph_.Dense(name, x, w, bias));
        break;
      }
      case 6:
        matrices_.push_back(Pick(2) == 0 ? graph_.Dropout(name, x)
                                         : graph_.RowWise(name, {x}));
        break;
      default:
        matrices_.push_back(graph_.Opaque(name, {x}, AnyShape()));
    }
  }

  // Adds an operator of several outputs, or of vectors.
  void AddOther(const std::string& number, NodeEntry x) {
    const std::string name = "op" + number;
    const Shape s = ShapeOf(x);
    switch (Pick(5)) {
      case 0: {
        constexpr Reducer kReducers[] = {Reducer::kSum, Reducer::kMax, Reducer::kMin,
                                         Reducer::kProd};
        vectors_.push_back(graph_.ReduceRows(name, x, kReducers[Pick(4)]));
        break;
      }
      case 1:
        for (NodeEntry output : graph_.Extremes(name, x)) {
          if (Pick(2) == 0) vectors_.push_back(output);
        }
        break;
      case 2:
        if (s[1] % 2 != 0) break;
        for (NodeEntry half : graph_.Split(name, x, 2)) matrices_.push_back(half);
        break;
      case 3:  // the second one is not read
        matrices_.push_back(graph_.Elementwise(name, {x}, "pair", 2));
        break;
      default:
        Variable("aux" + number, {s[1]}, "aux");
        graph_.Head(graph_.SumRows(name, x), "aux:aux" + number);
    }
  }

  // Makes some matrix or vector of its shape, if there is one, the parameter's gradient.
  void AddGradient(const std::string& parameter) {
    const Graph& graph = graph_.graph();
    int variable = 0;
    while (graph.nodes[variable].name != parameter) ++variable;
    for (const std::vector<NodeEntry>* list : {&matrices_, &vectors_}) {
      for (NodeEntry entry : *list) {
        if (graph.nodes[entry.node].is_variable() || Pick(2) == 0) continue;
        if (graph.shape(entry) != graph.shape({variable, 0})) continue;
        return graph_.Head(entry, "gradient:" + parameter);
      }
    }
  }

  std::mt19937 random_;
  ExampleGraph graph_;
  std::vector<NodeEntry> matrices_;
  std::vector<NodeEntry> vectors_;
  std::vector<std::string> parameters_;
};

}  // namespace

// y = act(x w), the gradients of w and maybe of x, and the update of w.
ExampleGraph TrainedGraph(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  const auto extent = [&] {
    constexpr int64_t kExtents[] = {1, 2, 3, 4, 6, 8, 12};
    return kExtents[pick(7)];
  };
  ExampleGraph graph;
  const int64_t batch = extent();
  const Shape shape = {extent(), extent()};
  const NodeEntry x = graph.Variable("x", {batch, shape[0]}, "data");
  const NodeEntry w = graph.Variable("w", shape, "parameter");
  const NodeEntry y = graph.MatMul("y", x, w);
  const NodeEntry seen = pick(2) == 0 ? y : graph.RowWise("act", {y});
  graph.Head(seen, "output");
  NodeEntry gradient = graph.MatMul("gw", x, seen, true, false);
  graph.After(gradient, y);
  if (pick(3) == 0) {
    const NodeEntry second = graph.RowWise("second", {gradient});
    graph.After(second, y);
    gradient = graph.Elementwise("sum", {gradient, second}, "add");
  }
  if (pick(2) == 0) {  // reads w again
    const NodeEntry of_x = graph.MatMul("gx", seen, w, false, true);
    graph.After(of_x, y);
    graph.Head(of_x, "gradient:x");
  }
  std::vector<NodeEntry> inputs = {w, gradient};
  for (size_t state = pick(3); state > 0; --state) {
    if (pick(4) == 0) graph.SetDtype(1);  // a copy in higher precision
    const std::string name = "w:state" + std::to_string(state);
    inputs.push_back(graph.Variable(name, shape, "state:w"));
    graph.SetDtype(0);
  }
  graph.Head(gradient, "gradient:w");
  graph.Head(graph.Elementwise("new_w", inputs, "update"), "update:w");
  return graph;
}

ExampleGraph RandomGraph(unsigned seed, int num_ops) {
  return ExampleGrower(seed).Grow(num_ops);
}

}  // namespace tofu
