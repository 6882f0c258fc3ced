#include "passes/partition/partitioned.h"

#include <unordered_map>

#include "base/error.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

std::string ShapeText(const Shape& shape, int dtype) {
  std::string text = DtypeName(dtype) + "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ",") + std::to_string(shape[d]);
  }
  return text + "]";
}

}  // namespace

std::vector<int> NodeWorkers(const Graph& graph, int workers) {
  std::unordered_map<Name, int> numbers;
  for (int w = 0; w < workers; ++w) numbers.emplace(WorkerGroup(w), w);
  std::vector<int> node_workers;
  node_workers.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const auto worker = numbers.find(node.group);
    TOFU_CHECK(worker != numbers.end()) << "node " << node.name << " is on no worker";
    node_workers.push_back(worker->second);
  }
  return node_workers;
}

std::string DumpGraph(const Graph& graph) {
  std::string text;
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const Node& n = graph.nodes[node];
    text += n.name + "  " + (n.is_variable() ? "variable" : n.op.text()) + "  " +
            (n.group.empty() ? "-" : n.group.text());
    for (int output = 0; output < n.num_outputs; ++output) {
      const NodeEntry entry{node, output};
      text +=
          (output == 0 ? "  " : ", ") + ShapeText(graph.shape(entry), graph.dtype(entry));
    }
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      const NodeEntry input = n.inputs[slot];
      text += (slot == 0 ? "  <- " : ", ") + graph.nodes[input.node].name;
      if (graph.nodes[input.node].num_outputs > 1) {
        text += "." + std::to_string(input.index);
      }
    }
    text += '\n';
  }
  for (NodeEntry head : graph.heads) {
    text +=
        "head  " + graph.nodes[head.node].name + "." + std::to_string(head.index) + "\n";
  }
  return text;
}

}  // namespace tofu
