// Makes nodes of a partitioned graph in one line each, for tests of its order.
#ifndef TOFU_TESTS_CPP_SUPPORT_BUILT_NODES_H_
#define TOFU_TESTS_CPP_SUPPORT_BUILT_NODES_H_

#include <string>
#include <utility>
#include <vector>

#include "passes/partition/graph_builder.h"

namespace tofu {

// A variable of eight float32 on `worker`.
inline NodeEntry Variable(GraphBuilder* builder, const std::string& name, int worker) {
  Node variable;
  variable.name = name;
  return {builder->Add(std::move(variable), worker, {{8}}, {0}), 0};
}

// An operator with one output of eight float32, on the worker of its first input.
inline NodeEntry Operator(GraphBuilder* builder, const std::string& op,
                          const std::string& name, const std::vector<NodeEntry>& inputs) {
  Node node;
  node.op = op;
  node.name = name;
  node.inputs = inputs;
  return {builder->Add(std::move(node), builder->worker(inputs[0]), {{8}}, {0}), 0};
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_BUILT_NODES_H_
