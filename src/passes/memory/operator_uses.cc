#include "passes/memory/operator_uses.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

using Json = nlohmann::ordered_json;

// Attributes that are MXNet's and ours, not the operator's.
bool IsOwn(const std::string& key) { return key.compare(0, 2, "__") != 0; }

// Equal for nodes that call an operator in the same way.
std::string Key(const Node& node) {
  std::string key = node.op;
  const auto add = [&key](const std::string& text) {
    key += '\n' + std::to_string(text.size()) + ' ' + text;
  };
  for (const auto& [name, value] : node.attrs) {
    if (!IsOwn(name)) continue;
    add(name);
    add(value);
  }
  return key + '\n' + std::to_string(node.inputs.size());
}

// The node that stands for all of its way.
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

Json EntryJson(const Graph& graph, NodeEntry entry) {
  return Json::array({graph.shape(entry), graph.dtype(entry)});
}

Json UseJson(const Graph& graph, int number) {
  const Node& node = graph.nodes[number];
  Json json = {{"op", node.op}, {"attrs", Json::object()}};
  for (const auto& [name, value] : node.attrs) {
    if (IsOwn(name)) json["attrs"][name] = value;
  }
  json["inputs"] = Json::array();
  for (NodeEntry input : node.inputs) json["inputs"].push_back(EntryJson(graph, input));
  json["outputs"] = Json::array();
  for (int i = 0; i < node.num_outputs; ++i) {
    json["outputs"].push_back(EntryJson(graph, {number, i}));
  }
  return json;
}

// Shapes of what nodes read from nodes that have another context.
std::set<Shape> CrossingShapes(const Graph& graph) {
  const auto context = [&graph](int node) {
    const auto& attrs = graph.nodes[node].attrs;
    const auto found = attrs.find(kContextAttr);
    return found == attrs.end() ? "" : found->second;
  };
  std::set<Shape> shapes;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const std::string own = context(node);
    for (NodeEntry input : graph.nodes[node].inputs) {
      if (context(input.node) != own) shapes.insert(graph.shape(input));
    }
  }
  return shapes;
}

}  // namespace

std::string OperatorUses(const Graph& graph) {
  std::map<std::string, int> numbers;
  std::vector<Use> uses;
  std::vector<int> node_uses;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    if (graph.nodes[node].is_variable()) {
      node_uses.push_back(-1);
      continue;
    }
    const auto [found, is_new] =
        numbers.emplace(Key(graph.nodes[node]), static_cast<int>(uses.size()));
    const int64_t elements = Elements(graph, node);
    if (is_new) uses.push_back({node, elements});
    Use& use = uses[found->second];
    if (elements > use.elements) use = {node, elements};
    node_uses.push_back(found->second);
  }
  Json json = {{"nodes", node_uses}, {"operators", Json::array()}};
  for (const Use& use : uses) json["operators"].push_back(UseJson(graph, use.node));
  json["shapes"] = std::set<Shape>(graph.shapes.begin(), graph.shapes.end());
  json["crossing_shapes"] = CrossingShapes(graph);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tofu
