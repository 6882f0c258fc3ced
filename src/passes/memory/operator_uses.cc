#include "passes/memory/operator_uses.h"

#include <cstdint>
#include <map>
#include <string>

#include "fetch/node_names.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// A text that is equal for nodes that call an operator in the same way.
std::string Key(const Node& node) {
  std::string key = node.op.text();
  const auto add = [&key](const std::string& text) {
    key += '\n' + std::to_string(text.size()) + ' ' + text;
  };
  for (const auto& [name, value] : node.attrs) {
    if (!IsOperatorAttr(name)) continue;
    add(name);
    add(value);
  }
  return key + '\n' + std::to_string(node.inputs.size());
}

// The node that represents one way to call an operator.
struct Use {
  int node = 0;
  int64_t elements = 0;
};

int64_t Elements(const Graph& graph, int node) {
  int64_t elements = 0;
  for (NodeEntry input : graph.nodes[node].inputs) {
    elements += NumElements(graph.shape(input));
  }
  for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
    elements += NumElements(graph.shape({node, i}));
  }
  return elements;
}

}  // namespace

bool IsOperatorAttr(const std::string& name) { return name.compare(0, 2, "__") != 0; }

OperatorUses FindOperatorUses(const Graph& graph) {
  std::map<std::string, int> numbers;
  std::vector<Use> uses;
  OperatorUses result;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    // Nearly every fetch has a way of its own.
    if (graph.nodes[node].is_variable() || graph.nodes[node].op == kMultiFetchOp) {
      result.node_uses.push_back(-1);
      continue;
    }
    const auto [way, is_new] =
        numbers.emplace(Key(graph.nodes[node]), static_cast<int>(uses.size()));
    const int64_t elements = Elements(graph, node);
    if (is_new) uses.push_back({node, elements});
    Use& use = uses[way->second];
    if (elements > use.elements) use = {node, elements};
    result.node_uses.push_back(way->second);
  }
  for (const Use& use : uses) result.nodes.push_back(use.node);
  return result;
}

}  // namespace tofu
