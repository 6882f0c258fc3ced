// Training graphs with their strategy tables, made in memory for the tests of
// the search.
#ifndef TOFU_TESTS_CPP_SUPPORT_EXAMPLE_GRAPHS_H_
#define TOFU_TESTS_CPP_SUPPORT_EXAMPLE_GRAPHS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// Appends nodes to a graph and rows to its table, both of them always valid.
class ExampleGraph {
 public:
  NodeEntry Variable(const std::string& name, const Shape& shape,
                     const std::string& role = "");

  // out[i, j] = sum over k of a[i, k] * b[k, j]; each may be stored transposed.
  NodeEntry MatMul(const std::string& name, NodeEntry a, NodeEntry b,
                   bool transpose_a = false, bool transpose_b = false);
  // An element-wise operator on any number of inputs of one shape.
  NodeEntry Elementwise(const std::string& name, const std::vector<NodeEntry>& inputs,
                        const std::string& op = "relu", int num_outputs = 1);
  NodeEntry Dropout(const std::string& name, NodeEntry x);
  // out[i, j] = x[i, j] + bias[j].
  NodeEntry AddBias(const std::string& name, NodeEntry x, NodeEntry bias);
  // x * w + bias in one operator: parts of the sum other than the first get no bias.
  NodeEntry Dense(const std::string& name, NodeEntry x, NodeEntry w, NodeEntry bias);
  // out[j] = sum over i of x[i, j].
  NodeEntry SumRows(const std::string& name, NodeEntry x);
  // The same with another reduction.
  NodeEntry ReduceRows(const std::string& name, NodeEntry x, Reducer reducer);
  // The largest element of each column, and the least of each row.
  std::vector<NodeEntry> Extremes(const std::string& name, NodeEntry x);
  // A single number: the sum over columns of the maximum over rows.
  NodeEntry SumOfLargest(const std::string& name, NodeEntry x);
  // out[b, x] = sum over d of in[b, stride * x + d - pad], d < width, with 0 outside of
  // `in`.
  NodeEntry Window(const std::string& name, NodeEntry in, int width, int stride,
                   int pad = 0);
  // An operator that computes each row from the whole row.
  NodeEntry RowWise(const std::string& name, const std::vector<NodeEntry>& inputs);
  // An operator without a description.
  NodeEntry Opaque(const std::string& name, const std::vector<NodeEntry>& inputs,
                   const Shape& shape);
  // Several parts of x's last dimension as outputs of one operator.
  std::vector<NodeEntry> Split(const std::string& name, NodeEntry x, int parts);

  // The dtype of tensors added from now on; float32 at first.
  void SetDtype(int dtype) { dtype_ = dtype; }
  void Head(NodeEntry entry, const std::string& role);
  void After(NodeEntry backward, NodeEntry forward);  // control_deps[0]

  const Graph& graph();
  const StrategyTable& table() const { return table_; }

 private:
  NodeEntry Add(const std::string& op, const std::string& name,
                const std::vector<NodeEntry>& inputs, const std::vector<Shape>& outputs,
                StrategyRow row, const std::map<std::string, std::string>& attrs = {});
  int64_t Extent(NodeEntry entry, int dim) const;

  Graph graph_;
  StrategyTable table_;
  std::map<std::string, int> rows_;  // kind of operator -> row
  int dtype_ = 0;
};

// A layer y = act(x w), a loss that can only be split along the batch, and
// their backward operators. Trained: w is updated in place by its gradient.
ExampleGraph OneLayer(int64_t batch, int64_t in, int64_t out, bool trained);

// `layers` layers of `width` units with biases; gradients of all parameters.
ExampleGraph Mlp(int64_t batch, int64_t width, int layers);

// h_t = act(x_t wx + h_(t-1) wh), t = 1 .. steps, forward and backward, as an
// unroller would write it: gradients of wx and wh summed over the steps.
ExampleGraph UnrolledRnn(int64_t batch, int64_t width, int steps);

// Blocks y = x + act(x w1) w2, forward only.
ExampleGraph Residual(int64_t batch, int64_t width, int blocks);

// A random graph of `num_ops` operators: dtypes, reductions, padding, parameters with
// gradients, auxiliary states and numbers of outputs vary. Equal seeds give equal graphs.
ExampleGraph RandomGraph(unsigned seed, int num_ops);

// A random graph whose one parameter, w, is updated with up to two states.
ExampleGraph TrainedGraph(unsigned seed);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_EXAMPLE_GRAPHS_H_
