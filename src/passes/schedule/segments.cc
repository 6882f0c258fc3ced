#include "passes/schedule/segments.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

constexpr int kNothing = -1;
constexpr int kStockSize = 15;  // operators of one of the framework's own segments

bool IsCopy(const Node& node) { return node.op == kCrossDeviceCopyOp; }

class Finder {
 public:
  explicit Finder(const BoundGraph& bound)
      : bound_(bound),
        read_elsewhere_(bound.graph.nodes.size(), false),
        last_arrival_(bound.graph.nodes.size(), kNothing) {}

  std::vector<NodeRange> Run() {
    MarkReadElsewhere();
    for (int node = 0; node < bound_.graph.num_nodes(); ++node) {
      if (bound_.graph.nodes[node].is_variable()) continue;
      last_arrival_[node] = LastArrival(node);
      if (IsCopy(bound_.graph.nodes[node])) {
        Close();
      } else {
        Add(node);
      }
    }
    Close();
    return std::move(segments_);
  }

 private:
  // Whether what a node computes has just come from another worker.
  bool IsArrival(int node) const {
    const Node& n = bound_.graph.nodes[node];
    return IsCopy(n) || n.op == kMultiFetchOp;
  }

  void MarkReadElsewhere() {
    for (int node = 0; node < bound_.graph.num_nodes(); ++node) {
      for (NodeEntry input : bound_.graph.nodes[node].inputs) {
        if (bound_.workers[input.node] != bound_.workers[node]) {
          read_elsewhere_[input.node] = true;
        }
      }
    }
  }

  // The last node, in the executor's order, from which something arrives that `node`
  // needs.
  int LastArrival(int node) const {
    if (IsArrival(node)) return node;
    int last = kNothing;
    for (NodeEntry input : bound_.graph.nodes[node].inputs) {
      last = std::max(last, last_arrival_[input.node]);
    }
    return last;
  }

  bool IsInSegment(int node) const {
    return node >= range_.begin && !bound_.graph.nodes[node].is_variable();
  }

  // Whether an operator reads one of the segment, and otherwise only what the segment
  // needs too, what waits for the same arrival, or for none; or neither waits for one.
  bool WaitsForNoMore(int node) const {
    bool fits = arrival_ == kNothing && last_arrival_[node] == kNothing;
    for (NodeEntry input : bound_.graph.nodes[node].inputs) {
      const int arrival = last_arrival_[input.node];
      if (IsInSegment(input.node)) {
        fits = true;
      } else if (arrival != kNothing && arrival != arrival_ &&
                 needed_.count(input.node) == 0) {
        return false;
      }
    }
    return fits;
  }

  void Add(int node) {
    const bool is_fetch_in_a_row = only_fetches_ && IsArrival(node);
    const bool joins = is_fetch_in_a_row || WaitsForNoMore(node);
    if (bound_.workers[node] != worker_ || !joins) Close();
    worker_ = bound_.workers[node];
    only_fetches_ = (size_ == 0 || only_fetches_) && IsArrival(node);
    if (size_++ == 0) range_.begin = node;
    range_.end = node + 1;
    arrival_ = std::max(arrival_, last_arrival_[node]);
    for (NodeEntry input : bound_.graph.nodes[node].inputs) {
      needed_.insert(input.node);
      for (NodeEntry before : bound_.graph.nodes[input.node].inputs) {
        needed_.insert(before.node);
      }
    }
    if (read_elsewhere_[node]) Close();
  }

  void Close() {
    if (size_ > 1) segments_.push_back(range_);
    size_ = 0;
    worker_ = kNothing;
    arrival_ = kNothing;
    needed_.clear();
  }

  const BoundGraph& bound_;
  std::vector<bool> read_elsewhere_;  // [node]
  std::vector<int> last_arrival_;     // [node]
  std::vector<NodeRange> segments_;
  // The segment that grows:
  NodeRange range_;
  int size_ = 0;  // operators
  int worker_ = kNothing;
  int arrival_ = kNothing;  // the last that it waits for
  std::set<int> needed_;    // nodes that its operators read, and that these read
  bool only_fetches_ = false;
};

}  // namespace

std::vector<NodeRange> FindSegments(const BoundGraph& bound) {
  return Finder(bound).Run();
}

std::vector<NodeRange> FindStockSegments(const BoundGraph& bound) {
  std::vector<NodeRange> segments;
  std::set<int> workers;  // of the operators since `begin`
  int begin = 0;
  int size = 0;
  const auto close = [&](int end) {
    if (size > 1 && workers.size() == 1) segments.push_back({begin, end});
    workers.clear();
    size = 0;
  };
  for (int node = 0; node < bound.graph.num_nodes(); ++node) {
    const Node& n = bound.graph.nodes[node];
    if (n.is_variable()) continue;
    if (IsCopy(n)) {
      close(node);
      continue;
    }
    if (size == 0) begin = node;
    workers.insert(bound.workers[node]);
    if (++size == kStockSize) close(node + 1);
  }
  close(bound.graph.num_nodes());
  return segments;
}

}  // namespace tofu
