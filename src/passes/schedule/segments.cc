#include "passes/schedule/segments.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fetch/node_names.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

constexpr int kNothing = -1;
// The most bytes of all tensors of an operator in a segment. A GPU moves 1 MiB in about
// 10 us, the time of a wait for a stream.
constexpr int64_t kMostBytes = int64_t{1} << 20;
constexpr int kStockSize = 15;  // operators of each of the framework's own segments

bool IsCopy(const Node& node) { return node.op == kCrossDeviceCopyOp; }

class Finder {
 public:
  explicit Finder(const BoundGraph& bound)
      : bound_(bound), last_arrival_(bound.graph.nodes.size(), kNothing) {}

  std::vector<NodeRange> Run() {
    for (int node = 0; node < bound_.graph.num_nodes(); ++node) {
      if (bound_.graph.nodes[node].is_variable()) continue;
      last_arrival_[node] = LastArrival(node);
      if (IsCopy(bound_.graph.nodes[node]) || IsLarge(node)) {
        Close();
      } else {
        Add(node);
      }
    }
    Close();
    return std::move(segments_);
  }

 private:
  // Whether a node brings its output from another worker.
  bool IsArrival(int node) const {
    const Node& n = bound_.graph.nodes[node];
    return IsCopy(n) || n.op == kMultiFetchOp;
  }

  bool IsLarge(int node) const {
    const Node& n = bound_.graph.nodes[node];
    int64_t bytes = 0;
    for (int i = 0; i < n.num_outputs; ++i) bytes += Bytes({node, i});
    for (NodeEntry input : n.inputs) bytes += Bytes(input);
    return bytes > kMostBytes;
  }

  int64_t Bytes(NodeEntry entry) const {
    return NumElements(bound_.graph.shape(entry)) * DtypeBytes(bound_.graph.dtype(entry));
  }

  // The last arrival, in the executor's order, that `node` needs.
  int LastArrival(int node) const {
    if (IsArrival(node)) return node;
    int last = kNothing;
    for (NodeEntry input : bound_.graph.nodes[node].inputs) {
      last = std::max(last, last_arrival_[input.node]);
    }
    return last;
  }

  void Add(int node) {
    const bool joins = bound_.workers[node] == worker_ && last_arrival_[node] <= arrival_;
    if (!joins) Close();
    worker_ = bound_.workers[node];
    arrival_ = std::max(arrival_, last_arrival_[node]);
    if (size_++ == 0) range_.begin = node;
    range_.end = node + 1;
  }

  void Close() {
    if (size_ > 1) segments_.push_back(range_);
    size_ = 0;
    worker_ = kNothing;
    arrival_ = kNothing;
  }

  const BoundGraph& bound_;
  std::vector<int> last_arrival_;  // [node]
  std::vector<NodeRange> segments_;
  // The open segment:
  NodeRange range_;
  int size_ = 0;  // operators
  int worker_ = kNothing;
  int arrival_ = kNothing;  // the last arrival that it waits for
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
