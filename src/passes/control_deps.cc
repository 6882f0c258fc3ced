#include "passes/control_deps.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "passes/emit_multifetch.h"
#include "passes/graph_builder.h"
#include "passes/memory_order.h"

namespace tofu {
namespace {

// The graph with node order[i] as number i.
Graph Reordered(Graph* graph, const std::vector<int>& order) {
  std::vector<int> numbers(order.size());
  for (size_t i = 0; i < order.size(); ++i) numbers[order[i]] = static_cast<int>(i);
  Graph result;
  for (int number : order) {
    Node& node = graph->nodes[number];
    for (int i = 0; i < node.num_outputs; ++i) {
      const int entry = graph->first_entry[number] + i;
      result.shapes.push_back(std::move(graph->shapes[entry]));
      result.dtypes.push_back(graph->dtypes[entry]);
    }
    for (NodeEntry& input : node.inputs) input.node = numbers[input.node];
    result.nodes.push_back(std::move(node));
  }
  result.heads = graph->heads;
  for (NodeEntry& head : result.heads) head.node = numbers[head.node];
  result.head_roles = std::move(graph->head_roles);
  IndexEntries(&result);
  return result;
}

// MXNet takes the first dependency of a backward operator for the forward
// operator, and its shapes from there. Backward operators are named so, and two
// others are registered as such.
bool MayDepend(const Node& node) {
  return node.op.find("backward") == std::string::npos && node.op != "gather_nd" &&
         node.op != "scatter_nd";
}

// The order with every fetch right behind the last node that it reads or that its
// handles are of.
std::vector<int> WithEarlyFetches(const Graph& graph, const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
  std::vector<std::vector<int>> behind(order.size());  // [place]: fetches
  for (int node : order) {
    if (graph.nodes[node].op != kMultiFetchOp) continue;
    int last = 0;
    for (NodeEntry input : graph.nodes[node].inputs) {
      last = std::max(last, places[input.node]);
    }
    behind[last].push_back(node);
  }
  std::vector<int> early;
  for (int node : order) {
    if (graph.nodes[node].op == kMultiFetchOp) continue;
    early.push_back(node);
    const std::vector<int>& fetches = behind[places[node]];
    early.insert(early.end(), fetches.begin(), fetches.end());
  }
  return early;
}

}  // namespace

void AddControlDeps(Graph* graph, std::vector<int>* node_workers, bool delay_fetches) {
  std::vector<int> order = MemoryOrder(*graph);
  if (!delay_fetches) order = WithEarlyFetches(*graph, order);
  *graph = Reordered(graph, order);
  if (node_workers != nullptr) {
    std::vector<int> workers;
    for (int number : order) workers.push_back((*node_workers)[number]);
    *node_workers = std::move(workers);
  }
  std::map<std::string, std::vector<int>> since;  // by the attribute that places a node
  for (int number = 0; number < graph->num_nodes(); ++number) {
    Node& node = graph->nodes[number];
    node.control_deps.clear();
    if (node.is_variable()) continue;
    std::vector<int>& before = since[node.attrs[kContextAttr]];
    if (MayDepend(node)) node.control_deps = std::exchange(before, {});
    before.push_back(number);
  }
}

}  // namespace tofu
