#include "passes/simulate/operator_calls.h"

#include <cstdint>
#include <string>
#include <unordered_map>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"
#include "passes/memory/operator_uses.h"

namespace tofu {
namespace {

bool IsKnown(const std::string& op) {
  return op == kMultiFetchOp || op == kCrossDeviceCopyOp;
}

void AddEntry(const Graph& graph, NodeEntry entry, std::string* key) {
  *key += std::to_string(graph.dtype(entry));
  for (int64_t extent : graph.shape(entry)) *key += ',' + std::to_string(extent);
  *key += ';';
}

// A text that is equal for nodes that make the same call.
std::string Key(const Graph& graph, int number) {
  const Node& node = graph.nodes[number];
  std::string key = node.op.text() + '\n';
  for (const auto& [name, value] : node.attrs) {
    if (!IsOperatorAttr(name)) continue;
    key += name;
    key += '=' + std::to_string(value.size()) + ' ';
    key += value;
    key += '\n';
  }
  for (NodeEntry input : node.inputs) AddEntry(graph, input, &key);
  key += '>';
  for (int i = 0; i < node.num_outputs; ++i) AddEntry(graph, {number, i}, &key);
  return key;
}

}  // namespace

OperatorCalls FindOperatorCalls(const Graph& graph) {
  std::unordered_map<std::string, int> numbers;
  OperatorCalls calls;
  calls.node_calls.reserve(graph.nodes.size());
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable() || IsKnown(graph.nodes[node].op)) {
      calls.node_calls.push_back(-1);
      continue;
    }
    const auto [call, is_new] =
        numbers.emplace(Key(graph, node), static_cast<int>(calls.nodes.size()));
    if (is_new) calls.nodes.push_back(node);
    calls.node_calls.push_back(call->second);
  }
  return calls;
}

}  // namespace tofu
