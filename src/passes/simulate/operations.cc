#include "passes/simulate/operations.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "fetch/fetch_bundle.h"
#include "fetch/fetch_nodes.h"
#include "mxnet/dialect/dialect.h"

namespace tofu {
namespace {

// Bytes of memory traffic per byte that moves: it is read and written.
constexpr double kMovesPerByte = 2;
constexpr double kUnknown = -1;

class Maker {
 public:
  Maker(const BoundGraph& bound, const std::vector<int>& blocks, const Machine& machine,
        const OperatorCalls& calls, const std::vector<Work>& works,
        const std::vector<NodeRange>& segments)
      : bound_(bound),
        graph_(bound.graph),
        blocks_(blocks),
        machine_(machine),
        calls_(calls),
        works_(works),
        segments_(segments) {}

  Operations Run() {
    seconds_.assign(std::max<size_t>(machine_.kinds.size(), 1),
                    std::vector<double>(works_.size(), kUnknown));
    result_.node_operations.assign(graph_.nodes.size(), -1);
    const std::vector<int> ends = SegmentEnds();
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (graph_.nodes[node].is_variable()) continue;
      const bool joins = !result_.operations.empty() && node < segment_end_;
      if (!joins) {
        segment_end_ = ends[node];
        StartOperation(node);
      }
      AddNode(node);
    }
    AddDependencies();
    return std::move(result_);
  }

 private:
  bool IsCopy(int node) const { return graph_.nodes[node].op == kCrossDeviceCopyOp; }

  // [node]: the end of the segment that starts there; the next node if it is alone.
  std::vector<int> SegmentEnds() const {
    std::vector<int> ends(graph_.nodes.size());
    for (int node = 0; node < graph_.num_nodes(); ++node) ends[node] = node + 1;
    for (NodeRange segment : segments_) {
      const int device = bound_.workers[segment.end - 1];
      if (machine_.DeviceOf(device).has_segments) ends[segment.begin] = segment.end;
    }
    return ends;
  }

  void StartOperation(int node) {
    Operation operation;
    operation.node = node;
    operation.device = bound_.workers[node];
    operation.host_s = machine_.DeviceOf(operation.device).synchronize_s;
    operation.activity = ActivityOf(node);
    operation.first_flow = static_cast<int>(result_.flows.size());
    if (IsCopy(node)) {  // the engine runs a copy on the tensor's own device
      operation.device = bound_.workers[graph_.nodes[node].inputs[0].node];
      operation.on_copy_thread = machine_.device.is_gpu;
    }
    result_.operations.push_back(operation);
  }

  Activity ActivityOf(int node) const {
    const std::string& op = graph_.nodes[node].op;
    if (op == kMultiFetchOp) return Activity::kFetch;
    return op == kCrossDeviceCopyOp ? Activity::kCopy : Activity::kCompute;
  }

  void AddNode(int node) {
    Operation& operation = result_.operations.back();
    result_.node_operations[node] = static_cast<int>(result_.operations.size()) - 1;
    operation.host_s += machine_.DeviceOf(operation.device).launch_s;
    switch (ActivityOf(node)) {
      case Activity::kFetch:
        AddFetch(node, &operation);
        break;
      case Activity::kCopy:
        AddFlow(operation.device, bound_.workers[node], Bytes({node, 0}), &operation);
        break;
      case Activity::kCompute:
        operation.compute_s += Seconds(node);
    }
  }

  double Seconds(int node) {
    const int call = calls_.node_calls[bound_.sources[node]];
    if (call < 0 || (works_[call].kind == OperatorKind::kMovement && IsInPlace(node))) {
      return 0;
    }
    const int device = bound_.workers[node];
    std::vector<double>& known = seconds_[machine_.KindOf(device)];
    if (known[call] == kUnknown) {
      known[call] = ComputeSeconds(machine_, graph_.nodes[node].op, works_[call], device);
    }
    return known[call];
  }

  // Whether the output shares the input's memory and elements.
  bool IsInPlace(int node) const {
    const Node& n = graph_.nodes[node];
    if (n.inputs.size() != 1 || n.num_outputs != 1) return false;
    const int in = blocks_[graph_.entry_id(n.inputs[0])];
    return in >= 0 && in == blocks_[graph_.entry_id({node, 0})] &&
           Bytes(n.inputs[0]) == Bytes({node, 0});
  }

  double Bytes(NodeEntry entry) const {
    return static_cast<double>(NumElements(graph_.shape(entry)) *
                               DtypeBytes(graph_.dtype(entry)));
  }

  void AddFlow(int from, int to, double bytes, Operation* operation) {
    result_.flows.push_back({from, to, bytes});
    ++operation->num_flows;
  }

  // The worker whose tile a fetch reads as input number `input`.
  int Owner(int fetch, int input) const {
    int node = graph_.nodes[fetch].inputs[input].node;
    while (IsCopy(node)) node = graph_.nodes[node].inputs[0].node;
    return bound_.workers[node];
  }

  void AddFetch(int node, Operation* operation) {
    const Node& n = graph_.nodes[node];
    const FetchBundle bundle = BundleOf(n);
    std::map<int, double> bytes;  // by worker
    int first_tile = 0;
    for (const MultiFetchSpec& spec : bundle) {
      for (const TilePiece& piece : spec.pieces) {
        double size = static_cast<double>(ElementBytes(spec.dtype));
        for (int64_t extent : piece.extents) size *= static_cast<double>(extent);
        const int worker = piece.source == kNoSource
                               ? bound_.workers[node]
                               : Owner(node, first_tile + piece.source);
        bytes[worker] += size;
      }
      first_tile += static_cast<int>(spec.sources.size());
    }
    for (const auto& [worker, size] : bytes) {
      if (worker != bound_.workers[node]) {
        AddFlow(worker, bound_.workers[node], size, operation);
        continue;
      }
      const Work work = {OperatorKind::kMovement, 0, kMovesPerByte * size};
      operation->compute_s +=
          ComputeSeconds(machine_, kMultiFetchOp, work, operation->device);
    }
  }

  // --- dependencies ---

  // One block of memory, which operations read and write in turn.
  struct Variable {
    int writer = -1;
    std::vector<int> readers;  // since its last write
  };

  int VariableOf(NodeEntry entry) const {
    const int id = graph_.entry_id(entry);
    return blocks_[id] >= 0 ? blocks_[id] : num_blocks_ + id;
  }

  void AddDependencies() {
    num_blocks_ = std::max(0, 1 + *std::max_element(blocks_.begin(), blocks_.end()));
    variables_.assign(static_cast<size_t>(num_blocks_) + graph_.shapes.size(), {});
    const size_t count = result_.operations.size();
    std::vector<std::vector<int>> before(count);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (result_.node_operations[node] >= 0)
        Depend(node, &before[result_.node_operations[node]]);
    }
    result_.num_predecessors.assign(count, 0);
    result_.first_successor.assign(count + 1, 0);
    for (size_t i = 0; i < count; ++i) {
      std::vector<int>& own = before[i];
      std::sort(own.begin(), own.end());
      own.erase(std::unique(own.begin(), own.end()), own.end());
      result_.num_predecessors[i] = static_cast<int>(own.size());
      for (int other : own) ++result_.first_successor[other + 1];
    }
    for (size_t i = 0; i < count; ++i) {
      result_.first_successor[i + 1] += result_.first_successor[i];
    }
    result_.successors.resize(static_cast<size_t>(result_.first_successor[count]));
    std::vector<int> next = result_.first_successor;
    for (size_t i = 0; i < count; ++i) {
      for (int other : before[i]) result_.successors[next[other]++] = static_cast<int>(i);
    }
  }

  void Depend(int node, std::vector<int>* before) {
    const int own = result_.node_operations[node];
    const Node& n = graph_.nodes[node];
    const auto add = [&](int other) {
      if (other >= 0 && other != own) before->push_back(other);
    };
    std::vector<int> written;
    for (int i = 0; i < n.num_outputs; ++i) written.push_back(VariableOf({node, i}));
    for (NodeEntry input : n.inputs) {
      const int number = VariableOf(input);
      Variable& variable = variables_[number];
      add(variable.writer);
      if (std::count(written.begin(), written.end(), number) == 0) {
        variable.readers.push_back(own);
      }
    }
    for (int number : written) {
      Variable& variable = variables_[number];
      add(variable.writer);
      for (int reader : variable.readers) add(reader);
      variable.writer = own;
      variable.readers.clear();
    }
  }

  const BoundGraph& bound_;
  const Graph& graph_;
  const std::vector<int>& blocks_;
  const Machine& machine_;
  const OperatorCalls& calls_;
  const std::vector<Work>& works_;
  const std::vector<NodeRange>& segments_;
  std::vector<std::vector<double>> seconds_;  // [kind of device][call]
  int segment_end_ = 0;
  int num_blocks_ = 0;
  std::vector<Variable> variables_;
  Operations result_;
};

}  // namespace

Operations MakeOperations(const BoundGraph& bound, const std::vector<int>& blocks,
                          const Machine& machine, const OperatorCalls& calls,
                          const std::vector<Work>& works,
                          const std::vector<NodeRange>& segments) {
  TOFU_CHECK(works.size() == calls.nodes.size()) << "one work for each call";
  TOFU_CHECK(static_cast<int>(blocks.size()) == bound.graph.num_entries())
      << "one block for each entry";
  if (bound.graph.nodes.empty()) return {};
  return Maker(bound, blocks, machine, calls, works, segments).Run();
}

}  // namespace tofu
