#include "graph/verify_graph.h"

#include <unordered_set>

#include "base/error.h"

namespace tofu {
namespace {

void VerifyEntries(const Graph& graph, const std::string& after) {
  const size_t nodes = graph.nodes.size();
  TOFU_CHECK(graph.first_entry.size() == nodes + 1 && graph.first_entry[0] == 0)
      << "after " << after << ": " << nodes << " nodes have " << graph.first_entry.size()
      << " entry offsets, expected one more than nodes";
  for (size_t i = 0; i < nodes; ++i) {
    TOFU_CHECK(graph.nodes[i].num_outputs >= 1 &&
               graph.first_entry[i + 1] ==
                   graph.first_entry[i] + graph.nodes[i].num_outputs)
        << "after " << after << ": node " << graph.nodes[i].name << " has "
        << graph.nodes[i].num_outputs << " outputs, which contradicts its entry offsets";
  }
  const size_t entries = static_cast<size_t>(graph.num_entries());
  TOFU_CHECK(graph.shapes.size() == entries && graph.dtypes.size() == entries)
      << "after " << after << ": " << entries << " entries have " << graph.shapes.size()
      << " shapes and " << graph.dtypes.size() << " dtypes";
}

void VerifyTensors(const Graph& graph, int node, const std::string& after) {
  for (int i = 0; i < graph.nodes[node].num_outputs; ++i) {
    for (int64_t extent : graph.shape({node, i})) {
      TOFU_CHECK(extent >= 0) << "after " << after << ": node " << graph.nodes[node].name
                              << ", output " << i << ": extent " << extent
                              << ", expected at least 0";
    }
    DtypeBytes(graph.dtype({node, i}));
  }
}

bool Resolves(const Graph& graph, NodeEntry entry, int nodes) {
  return entry.node >= 0 && entry.node < nodes && entry.index >= 0 &&
         entry.index < graph.nodes[entry.node].num_outputs;
}

void VerifyEdges(const Graph& graph, int number, const std::string& after) {
  const Node& node = graph.nodes[number];
  TOFU_CHECK(!node.is_variable() || (node.inputs.empty() && node.num_outputs == 1))
      << "after " << after << ": variable " << node.name
      << " has inputs or several outputs";
  for (NodeEntry input : node.inputs) {
    TOFU_CHECK(Resolves(graph, input, number))
        << "after " << after << ": node " << node.name << " (number " << number
        << ") reads output " << input.index << " of node number " << input.node
        << ", expected an output of a node before it";
  }
  for (int dependency : node.control_deps) {
    TOFU_CHECK(dependency >= 0 && dependency < number)
        << "after " << after << ": node " << node.name << " (number " << number
        << ") depends on node number " << dependency << ", expected one before it";
  }
}

}  // namespace

void VerifyGraph(const Graph& graph, const std::string& after) {
  VerifyEntries(graph, after);
  std::unordered_set<std::string> names;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    TOFU_CHECK(!n.is_variable() || names.insert(n.name).second)
        << "after " << after << ": two variables are called " << n.name;
    VerifyTensors(graph, node, after);
    VerifyEdges(graph, node, after);
  }
  for (NodeEntry head : graph.heads) {
    TOFU_CHECK(Resolves(graph, head, graph.num_nodes()))
        << "after " << after << ": a head is output " << head.index << " of node number "
        << head.node << ", expected one that exists";
  }
  TOFU_CHECK(graph.head_roles.empty() || graph.head_roles.size() == graph.heads.size())
      << "after " << after << ": " << graph.heads.size() << " heads have "
      << graph.head_roles.size() << " roles";
}

}  // namespace tofu
