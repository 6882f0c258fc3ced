#include "passes/schedule/order_nodes.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "fetch/node_names.h"
#include "graph/memory_order.h"
#include "passes/partition/graph_builder.h"

namespace tofu {
namespace {

// Moves the graph's nodes so that node order[i] becomes number i.
Graph Reordered(Graph* graph, const std::vector<int>& order) {
  std::vector<int> numbers(order.size());
  for (size_t i = 0; i < order.size(); ++i) numbers[order[i]] = static_cast<int>(i);
  Graph result;
  result.nodes.reserve(graph->nodes.size());
  result.shapes.reserve(graph->shapes.size());
  result.dtypes.reserve(graph->dtypes.size());
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

std::vector<int> PlacesOf(const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<int>(i);
  return places;
}

// The worker of every node; workers are numbered in the order of their first nodes.
std::vector<int> WorkersOf(const Graph& graph) {
  std::unordered_map<Name, int> numbers;
  std::vector<int> workers;
  workers.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const int next = static_cast<int>(numbers.size());
    workers.push_back(numbers.try_emplace(node.group, next).first->second);
  }
  return workers;
}

// The order with every node of operator `op` right after the last node that it reads;
// with `keep_workers`, also after the previous node on its worker.
std::vector<int> WithEarly(const std::string& op, const Graph& graph,
                           const std::vector<int>& workers, const std::vector<int>& order,
                           bool keep_workers) {
  const std::vector<int> places = PlacesOf(order);
  std::vector<std::vector<int>> behind(order.size());  // [place]: nodes
  std::vector<int> base(order.size());  // [place]: where its node goes, itself or earlier
  std::vector<int> previous(order.size(), 0);  // [worker]: the place of its last node
  for (size_t place = 0; place < order.size(); ++place) {
    const Node& node = graph.nodes[order[place]];
    int& last_of_worker = previous[workers[order[place]]];
    int last = keep_workers ? last_of_worker : 0;
    for (NodeEntry input : node.inputs) last = std::max(last, base[places[input.node]]);
    const bool is_moved = node.op == op;
    base[place] = is_moved ? last : static_cast<int>(place);
    if (is_moved) behind[last].push_back(order[place]);
    last_of_worker = base[place];
  }
  std::vector<int> early;
  for (size_t place = 0; place < order.size(); ++place) {
    if (graph.nodes[order[place]].op != op) early.push_back(order[place]);
    early.insert(early.end(), behind[place].begin(), behind[place].end());
  }
  return early;
}

// Moves nodes that other workers wait for ahead of nodes that can run in the meantime:
//
// - An address is published as soon as its tile is made.
// - A fetch does not wait, in this order, for other workers' nodes, and a tile is
//   retired as soon as all have read it. So when workers exchange tiles, each retires
//   its own before it continues, and none has to wait for another's next operator before
//   it may write to the memory of a tile.
std::vector<int> WithEarlyExchange(const Graph& graph, const std::vector<int>& workers,
                                   std::vector<int> order) {
  order = WithEarly(kPublishOp, graph, workers, order, false);
  order = WithEarly(kRetireOp, graph, workers, order, false);
  order = WithEarly(kMultiFetchOp, graph, workers, order, true);
  return WithEarly(kRetireOp, graph, workers, order, false);
}

}  // namespace

void OrderExchange(Graph* graph) {
  std::vector<int> order(graph->nodes.size());
  std::iota(order.begin(), order.end(), 0);
  *graph = Reordered(graph, WithEarlyExchange(*graph, WorkersOf(*graph), order));
}

std::vector<int> OrderNodes(Graph* graph, bool delay_fetches) {
  const std::vector<int> workers = WorkersOf(*graph);
  std::vector<int> order = WithEarlyExchange(*graph, workers, MemoryOrder(*graph));
  if (!delay_fetches) order = WithEarly(kMultiFetchOp, *graph, workers, order, false);
  *graph = Reordered(graph, order);
  return order;
}

}  // namespace tofu
