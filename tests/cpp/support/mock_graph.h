// Small graphs of the interpreter's operators with their strategy rows, and
// random plans for them.
#ifndef TOFU_TESTS_CPP_SUPPORT_MOCK_GRAPH_H_
#define TOFU_TESTS_CPP_SUPPORT_MOCK_GRAPH_H_

#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "support/interpreter.h"

namespace tofu {

// Grows a graph and its table together. Every operator method returns the
// operator's (first) output.
class MockGraph {
 public:
  explicit MockGraph(int dtype = 1) : dtype_(dtype) { graph.first_entry = {0}; }

  NodeEntry Variable(const std::string& name, const Shape& shape);
  // "add", "mul"; "noise" is random.
  NodeEntry Elementwise(const std::string& op, const std::vector<NodeEntry>& inputs);
  // "noise" without inputs.
  NodeEntry Noise(const Shape& shape);
  // A constant: "_full".
  NodeEntry Filled(const Shape& shape, const std::string& value);
  // "sum_axis", "prod_axis", "max_axis", "min_axis".
  NodeEntry ReduceAxis(const std::string& op, NodeEntry in, int axis);
  NodeEntry Moments(NodeEntry in);
  NodeEntry FullyConnected(NodeEntry x, NodeEntry w, NodeEntry bias);
  NodeEntry Conv1d(NodeEntry data, NodeEntry filters, int stride, int pad);
  NodeEntry MaxPool1d(NodeEntry data, int window, int stride, int pad);
  NodeEntry BroadcastRows(NodeEntry in, int64_t rows);
  NodeEntry Flatten(NodeEntry in);
  NodeEntry SecondHalf(NodeEntry in);
  NodeEntry Undescribed(NodeEntry in);  // "reverse"
  void Head(NodeEntry entry, const std::string& role);
  // The dtype of tensors added from now on.
  void SetDtype(int dtype) { dtype_ = dtype; }

  const Shape& shape(NodeEntry entry) const { return graph.shape(entry); }

  Graph graph;
  StrategyTable table;

 private:
  NodeEntry Add(const std::string& op, const std::vector<NodeEntry>& inputs,
                const std::vector<Shape>& shapes,
                const std::map<std::string, std::string>& attrs, const StrategyRow* row);

  int dtype_;
};

// The dimension that is accessed at variable `var`, shifted by `shift`.
DimAccess AtVar(int var, int64_t coef = 1, int64_t shift = 0);

// A plan that replicates everything.
Plan ReplicatedPlan(const MockGraph& mock, const std::vector<int>& parts);

// A seeded random graph of mixed dtypes; its heads are outputs, gradients and new
// auxiliary states.
MockGraph RandomGraph(std::mt19937* random);

// A plan that cuts every tensor and operator at random wherever a cut divides.
Plan RandomPlan(const MockGraph& mock, const std::vector<int>& parts,
                std::mt19937* random);

// Shares of the parts of most steps, and now and then a multiple.
TileShares RandomShares(const std::vector<int>& parts, std::mt19937* random);

// Lets tensors of the plan wait as terms of sums, and splits additions into terms, at
// steps that leave them whole.
void LetSomeWait(const MockGraph& mock, Plan* plan, std::mt19937* random);

// Values of the serial graph's variables, around 1.
std::map<std::string, Array> RandomValues(const Graph& graph, std::mt19937* random);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_MOCK_GRAPH_H_
