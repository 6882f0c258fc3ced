#include "passes/memory/bound_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "fetch/fetch_nodes.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

// The numbers of the nodes that each node depends on, in one list.
struct Dependencies {
  std::vector<size_t> begins = {0};  // [node + 1]
  std::vector<int> nodes;

  void Close() { begins.push_back(nodes.size()); }
};

Dependencies DependenciesOf(const Graph& graph) {
  Dependencies dependencies;
  dependencies.begins.reserve(graph.nodes.size() + 1);
  for (const Node& node : graph.nodes) {
    for (NodeEntry input : node.inputs) dependencies.nodes.push_back(input.node);
    for (int before : node.control_deps) dependencies.nodes.push_back(before);
    dependencies.Close();
  }
  return dependencies;
}

// The numbers of nodes in the post-order of a depth-first visit.
std::vector<int> VisitOrder(const Dependencies& dependencies,
                            const std::vector<int>& heads) {
  std::vector<int> order;
  order.reserve(dependencies.begins.size());
  std::vector<char> seen(dependencies.begins.size(), 0);
  std::vector<std::pair<int, size_t>> stack;  // node, next of its dependencies
  const auto push = [&](int node) {
    const auto at = static_cast<size_t>(node);
    if (seen[at]) return;
    seen[at] = 1;
    stack.emplace_back(node, dependencies.begins[at]);
  };
  for (int head : heads) {
    push(head);
    while (!stack.empty()) {
      auto& [number, next] = stack.back();
      if (next == dependencies.begins[static_cast<size_t>(number) + 1]) {
        order.push_back(number);
        stack.pop_back();
        continue;
      }
      push(dependencies.nodes[next++]);
    }
  }
  return order;
}

std::vector<int> NodesOf(const std::vector<NodeEntry>& entries) {
  std::vector<int> nodes;
  nodes.reserve(entries.size());
  for (NodeEntry entry : entries) nodes.push_back(entry.node);
  return nodes;
}

class Binder {
 public:
  Binder(const Graph& graph, const std::vector<int>& workers)
      : graph_(graph), workers_(workers), numbers_(graph.nodes.size(), -1) {}

  BoundOrder Run(const std::vector<NodeEntry>& heads) {
    to_.first_entry = {0};
    to_.first_read = {0};
    for (int node : VisitOrder(DependenciesOf(graph_), NodesOf(heads))) Add(node);
    for (NodeEntry head : heads) to_.heads.push_back(Same(head));
    // Without copies, a second visit would give the same order.
    return copies_.empty() ? std::move(to_) : Renumbered();
  }

 private:
  void Add(int number) {
    const Node& node = graph_.nodes[static_cast<size_t>(number)];
    const int worker = workers_[static_cast<size_t>(number)];
    const bool is_direct = IsDirect(node);
    reads_.clear();
    for (NodeEntry input : node.inputs) {
      reads_.push_back(is_direct ? Same(input) : OnWorker(input, worker));
    }
    for (int before : node.control_deps) {
      dependencies_.nodes.push_back(numbers_[static_cast<size_t>(before)]);
    }
    dependencies_.Close();
    numbers_[static_cast<size_t>(number)] = to_.size();
    for (int i = 0; i < node.num_outputs; ++i) {
      to_.entry_sources.push_back(graph_.entry_id({number, i}));
    }
    Append(number, worker, reads_);
  }

  int Same(NodeEntry entry) const {
    const int place = numbers_[static_cast<size_t>(entry.node)];
    return to_.first_entry[static_cast<size_t>(place)] + entry.index;
  }

  int OnWorker(NodeEntry entry, int worker) {
    const int same = Same(entry);
    if (workers_[static_cast<size_t>(entry.node)] == worker) return same;
    const auto [found, is_new] = copies_.emplace(
        std::make_tuple(entry.node, entry.index, worker), to_.num_entries());
    if (is_new) {
      dependencies_.Close();
      to_.entry_sources.push_back(graph_.entry_id(entry));
      Append(-1, worker, {same});
    }
    return found->second;
  }

  // Appends a node whose outputs have been appended.
  void Append(int source, int worker, const std::vector<int>& reads) {
    to_.sources.push_back(source);
    to_.workers.push_back(worker);
    to_.first_entry.push_back(to_.num_entries());
    to_.reads.insert(to_.reads.end(), reads.begin(), reads.end());
    to_.first_read.push_back(to_.reads.size());
  }

  // The order with places numbered as a second visit meets them, copies included.
  BoundOrder Renumbered() const {
    BoundOrder result;
    result.first_entry = {0};
    result.first_read = {0};
    std::vector<int> moved(to_.entry_sources.size(), -1);
    std::vector<int> heads;
    for (int head : to_.heads) heads.push_back(to_.place(head));
    for (int from : VisitOrder(AllDependencies(), heads)) {
      const auto place = static_cast<size_t>(from);
      result.sources.push_back(to_.sources[place]);
      result.workers.push_back(to_.workers[place]);
      for (size_t i = to_.first_read[place]; i < to_.first_read[place + 1]; ++i) {
        result.reads.push_back(moved[static_cast<size_t>(to_.reads[i])]);
      }
      result.first_read.push_back(result.reads.size());
      for (int e = to_.first_entry[place]; e < to_.first_entry[place + 1]; ++e) {
        const auto entry = static_cast<size_t>(e);
        moved[entry] = result.num_entries();
        result.entry_sources.push_back(to_.entry_sources[entry]);
      }
      result.first_entry.push_back(result.num_entries());
    }
    for (int head : to_.heads) result.heads.push_back(moved[static_cast<size_t>(head)]);
    return result;
  }

  Dependencies AllDependencies() const {
    Dependencies all;
    for (size_t place = 0; place < to_.sources.size(); ++place) {
      for (size_t i = to_.first_read[place]; i < to_.first_read[place + 1]; ++i) {
        all.nodes.push_back(to_.place(to_.reads[i]));
      }
      for (size_t i = dependencies_.begins[place]; i < dependencies_.begins[place + 1];
           ++i) {
        all.nodes.push_back(dependencies_.nodes[i]);
      }
      all.Close();
    }
    return all;
  }

  const Graph& graph_;
  const std::vector<int>& workers_;
  BoundOrder to_;
  Dependencies dependencies_;                        // [place]: control dependencies
  std::vector<int> numbers_;                         // [node]: its place
  std::vector<int> reads_;                           // of the node that is being added
  std::map<std::tuple<int, int, int>, int> copies_;  // entry, worker -> entry of to_
};

}  // namespace

int BoundOrder::place(int entry) const {
  const auto after = std::upper_bound(first_entry.begin(), first_entry.end(), entry);
  return static_cast<int>(after - first_entry.begin()) - 1;
}

BoundOrder OrderOf(const Graph& graph, const std::vector<int>& workers,
                   const std::vector<NodeEntry>& heads) {
  return Binder(graph, workers).Run(heads);
}

BoundGraph InOrder(Graph graph, const BoundOrder& order) {
  BoundGraph bound{{}, order.workers, order.sources};
  Graph& to = bound.graph;
  to.first_entry = order.first_entry;
  for (int entry : order.entry_sources) {
    to.shapes.push_back(graph.shapes[static_cast<size_t>(entry)]);
    to.dtypes.push_back(graph.dtypes[static_cast<size_t>(entry)]);
  }
  const auto entry_of = [&](int entry) {
    const int place = order.place(entry);
    return NodeEntry{place, entry - order.first_entry[static_cast<size_t>(place)]};
  };
  to.nodes.reserve(order.sources.size());
  for (size_t place = 0; place < order.sources.size(); ++place) {
    std::vector<NodeEntry> inputs;
    for (size_t i = order.first_read[place]; i < order.first_read[place + 1]; ++i) {
      inputs.push_back(entry_of(order.reads[i]));
    }
    Node node;
    if (order.sources[place] >= 0) {
      node = std::move(graph.nodes[static_cast<size_t>(order.sources[place])]);
    } else {
      node.op = kCrossDeviceCopyOp;
      node.name = to.nodes[static_cast<size_t>(inputs[0].node)].name + "_copy";
    }
    node.inputs = std::move(inputs);
    node.control_deps.clear();
    to.nodes.push_back(std::move(node));
  }
  for (int head : order.heads) to.heads.push_back(entry_of(head));
  return bound;
}

BoundGraph OrderAsBound(Graph graph, const std::vector<int>& workers) {
  const BoundOrder order = OrderOf(graph, workers, graph.heads);
  return InOrder(std::move(graph), order);
}

Graph OutlineOf(const Graph& graph) {
  Graph outline;
  outline.nodes.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    Node& bare = outline.nodes.emplace_back();
    bare.op = node.op;
    if (node.is_variable()) bare.name = node.name;
    if (IsDirect(node)) bare.attrs[kDirectAttr] = "1";
    bare.inputs = node.inputs;
    bare.control_deps = node.control_deps;
    bare.num_outputs = node.num_outputs;
  }
  outline.heads = graph.heads;
  outline.first_entry = graph.first_entry;
  outline.shapes = graph.shapes;
  outline.dtypes = graph.dtypes;
  return outline;
}

}  // namespace tofu
