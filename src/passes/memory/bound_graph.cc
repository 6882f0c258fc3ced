#include "passes/memory/bound_graph.h"

#include <map>
#include <tuple>
#include <utility>

#include "fetch/fetch_nodes.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

// Node numbers in the post-order of a depth-first visit.
std::vector<int> VisitOrder(const Graph& graph) {
  std::vector<int> order;
  std::vector<char> seen(graph.nodes.size(), 0);
  std::vector<std::pair<int, size_t>> stack;  // node, next of its dependencies
  const auto push = [&](int node) {
    if (seen[static_cast<size_t>(node)]) return;
    seen[static_cast<size_t>(node)] = 1;
    stack.emplace_back(node, 0);
  };
  for (const NodeEntry& head : graph.heads) {
    push(head.node);
    while (!stack.empty()) {
      auto& [number, next] = stack.back();
      const Node& node = graph.nodes[static_cast<size_t>(number)];
      const size_t inputs = node.inputs.size();
      if (next == inputs + node.control_deps.size()) {
        order.push_back(number);
        stack.pop_back();
        continue;
      }
      const size_t i = next++;
      push(i < inputs ? node.inputs[i].node : node.control_deps[i - inputs]);
    }
  }
  return order;
}

class Builder {
 public:
  Builder(Graph from, const std::vector<int>& workers)
      : from_(std::move(from)), workers_(workers), numbers_(from_.nodes.size(), -1) {}

  BoundGraph Run() {
    to_.graph.nodes.reserve(from_.nodes.size());
    to_.graph.shapes.reserve(from_.shapes.size());
    to_.graph.first_entry = {0};
    for (int node : VisitOrder(from_)) Add(node);
    for (const NodeEntry& head : from_.heads) {
      to_.graph.heads.push_back({numbers_[static_cast<size_t>(head.node)], head.index});
    }
    return std::move(to_);
  }

 private:
  void Add(int number) {
    Node node = std::move(from_.nodes[static_cast<size_t>(number)]);
    const int worker = workers_[static_cast<size_t>(number)];
    const bool is_direct = IsDirect(node);
    for (NodeEntry& input : node.inputs) {
      input = is_direct ? Same(input) : OnWorker(input, worker);
    }
    for (int& dependency : node.control_deps) {
      dependency = numbers_[static_cast<size_t>(dependency)];
    }
    for (int i = 0; i < node.num_outputs; ++i) {
      const auto entry = static_cast<size_t>(from_.entry_id({number, i}));
      to_.graph.shapes.push_back(std::move(from_.shapes[entry]));
      to_.graph.dtypes.push_back(from_.dtypes[entry]);
    }
    numbers_[static_cast<size_t>(number)] = Append(std::move(node), worker, number);
  }

  NodeEntry Same(NodeEntry entry) const {
    return {numbers_[static_cast<size_t>(entry.node)], entry.index};
  }

  NodeEntry OnWorker(NodeEntry entry, int worker) {
    const NodeEntry same = Same(entry);
    if (workers_[static_cast<size_t>(entry.node)] == worker) return same;
    const auto [found, is_new] =
        copies_.emplace(std::make_tuple(entry.node, entry.index, worker), 0);
    if (is_new) {
      Node copy;
      copy.op = kCrossDeviceCopyOp;
      copy.name = to_.graph.nodes[static_cast<size_t>(same.node)].name + "_copy";
      copy.inputs = {same};
      const Shape shape = to_.graph.shape(same);
      to_.graph.shapes.push_back(shape);
      to_.graph.dtypes.push_back(to_.graph.dtype(same));
      found->second = Append(std::move(copy), worker, -1);
    }
    return {found->second, 0};
  }

  // The shapes and dtypes of its outputs are there.
  int Append(Node node, int worker, int source) {
    auto& first = to_.graph.first_entry;
    first.push_back(first.back() + node.num_outputs);
    to_.graph.nodes.push_back(std::move(node));
    to_.workers.push_back(worker);
    to_.sources.push_back(source);
    return to_.graph.num_nodes() - 1;
  }

  Graph from_;  // its nodes and shapes move to to_
  const std::vector<int>& workers_;
  BoundGraph to_;
  std::vector<int> numbers_;                         // [node of from_]: its number in to_
  std::map<std::tuple<int, int, int>, int> copies_;  // entry, worker -> node of to_
};

// The same graph with its nodes in visiting order.
BoundGraph Renumbered(BoundGraph from) {
  BoundGraph to;
  to.graph.nodes.reserve(from.graph.nodes.size());
  to.graph.shapes.reserve(from.graph.shapes.size());
  std::vector<int> numbers(from.graph.nodes.size(), -1);
  for (int number : VisitOrder(from.graph)) {
    Node node = std::move(from.graph.nodes[static_cast<size_t>(number)]);
    for (NodeEntry& input : node.inputs) {
      input.node = numbers[static_cast<size_t>(input.node)];
    }
    for (int& dependency : node.control_deps) {
      dependency = numbers[static_cast<size_t>(dependency)];
    }
    for (int i = 0; i < node.num_outputs; ++i) {
      const int entry = from.graph.entry_id({number, i});
      to.graph.shapes.push_back(std::move(from.graph.shapes[static_cast<size_t>(entry)]));
      to.graph.dtypes.push_back(from.graph.dtype({number, i}));
    }
    numbers[static_cast<size_t>(number)] = to.graph.num_nodes();
    to.graph.nodes.push_back(std::move(node));
    to.workers.push_back(from.workers[static_cast<size_t>(number)]);
    to.sources.push_back(from.sources[static_cast<size_t>(number)]);
  }
  for (const NodeEntry& head : from.graph.heads) {
    to.graph.heads.push_back({numbers[static_cast<size_t>(head.node)], head.index});
  }
  IndexEntries(&to.graph);
  return to;
}

}  // namespace

Graph OutlineOf(const Graph& graph) {
  Graph outline;
  outline.nodes.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    outline.nodes.push_back({node.op,
                             node.is_variable() ? node.name : "",
                             {},
                             node.inputs,
                             node.control_deps,
                             node.num_outputs});
    if (IsDirect(node)) {
      outline.nodes.back().attrs[kDirectAttr] = "1";
    }
  }
  outline.heads = graph.heads;
  outline.first_entry = graph.first_entry;
  outline.shapes = graph.shapes;
  outline.dtypes = graph.dtypes;
  return outline;
}

BoundGraph OrderAsBound(Graph graph, const std::vector<int>& workers) {
  return Renumbered(Builder(std::move(graph), workers).Run());
}

}  // namespace tofu
