#include "passes/memory/executor_memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace tofu {
namespace {

constexpr int kNone = -1;
constexpr int kExternal = -2;
// The planner counts every element as a float32.
constexpr int64_t kPlannedElementBytes = 4;

class Planner {
 public:
  // elements: [entry], how many its tensor has.
  Planner(const BoundGraph& bound, const std::vector<int64_t>& elements,
          const MemoryTable& table, const ExecutorMemoryOptions& options, int match_range)
      : bound_(bound),
        graph_(bound.graph),
        elements_(elements),
        table_(table),
        match_range_(match_range),
        free_(static_cast<size_t>(options.num_workers)),
        live_(static_cast<size_t>(options.num_workers), 0),
        peak_(static_cast<size_t>(options.num_workers), 0) {
    CountReaders(options.external_heads);
  }

  ExecutorMemory Run() {
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!graph_.nodes[node].is_variable()) Visit(node);
    }
    ExecutorMemory memory;
    memory.match_range = match_range_;
    memory.bytes_per_worker.assign(free_.size(), 0);
    memory.live_per_worker = peak_;
    for (const Block& block : blocks_) {
      memory.planned_bytes += block.planned;
      memory.bytes_per_worker[block.worker] += block.bytes;
    }
    memory.blocks = std::move(block_of_);
    return memory;
  }

  // Records the tensors alive over time on the worker that needs most. Call it instead of
  // Run.
  void Trace(ExecutorMemory* memory) {
    const auto& needed = memory->live_per_worker;
    const auto most = std::max_element(needed.begin(), needed.end());
    stop_worker_ = static_cast<int>(most - needed.begin());
    stop_bytes_ = *most;
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      if (!graph_.nodes[node].is_variable()) Visit(node);
    }
    std::stable_sort(at_stop_.begin(), at_stop_.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    memory->peak_worker = stop_worker_;
    memory->peak = std::move(at_stop_);
    memory->moments = std::move(moments_);
  }

 private:
  struct Block {
    int worker = 0;
    int64_t planned = 0;
    int64_t bytes = 0;
    int64_t readers = 0;  // those that have not run yet
    int64_t live = 0;     // bytes of the tensor that it holds
    int entry = 0;        // the tensor that it holds
  };

  const MemoryRule& Rule(int node) const {
    static const MemoryRule none;
    const int source = bound_.sources[node];
    const int rule = source < 0 ? -1 : table_.node_rules[source];
    return rule < 0 ? none : table_.rules[rule];
  }

  static bool Ignores(const MemoryRule& rule, size_t input) {
    return std::count(rule.ignored_inputs.begin(), rule.ignored_inputs.end(), input) > 0;
  }

  int64_t Elements(int entry) const { return elements_[entry]; }
  int64_t Bytes(int entry) const {
    return Elements(entry) * DtypeBytes(graph_.dtypes[entry]);
  }

  void CountReaders(const std::vector<char>& external_heads) {
    readers_.assign(static_cast<size_t>(graph_.num_entries()), 0);
    block_of_.assign(static_cast<size_t>(graph_.num_entries()), kNone);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      const Node& n = graph_.nodes[node];
      if (n.is_variable()) block_of_[graph_.entry_id({node, 0})] = kExternal;
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (!Ignores(Rule(node), i)) ++readers_[graph_.entry_id(n.inputs[i])];
      }
    }
    for (size_t i = 0; i < graph_.heads.size(); ++i) {
      const int entry = graph_.entry_id(graph_.heads[i]);
      ++readers_[entry];
      if (i < external_heads.size() && external_heads[i]) block_of_[entry] = kExternal;
    }
  }

  void Visit(int node) {
    CheckInterrupt();
    const MemoryRule& rule = Rule(node);
    const Node& n = graph_.nodes[node];
    TakeOver(node, rule);
    std::vector<std::pair<int64_t, int>> outputs;  // size, entry, without a block
    for (int i = 0; i < n.num_outputs; ++i) {
      const int entry = graph_.entry_id({node, i});
      if (block_of_[entry] == kNone) outputs.emplace_back(Elements(entry), entry);
    }
    std::stable_sort(outputs.begin(), outputs.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto it = outputs.rbegin(); it != outputs.rend(); ++it) {
      Request(bound_.workers[node], it->second);
    }
    if (bound_.workers[node] == stop_worker_) {
      moments_.push_back({bound_.sources[node], live_[stop_worker_]});
    }
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const int block = block_of_[graph_.entry_id(n.inputs[i])];
      if (block < 0 || Ignores(rule, i)) continue;
      if (--blocks_[block].readers == 0) Release(block);
    }
    for (int i = 0; i < n.num_outputs; ++i) {
      const int block = block_of_[graph_.entry_id({node, i})];
      if (block >= 0 && blocks_[block].readers == 0) Release(block);
    }
  }

  // Gives outputs the blocks of inputs if the operator and the inputs' readers allow it.
  void TakeOver(int node, const MemoryRule& rule) {
    const Node& n = graph_.nodes[node];
    const bool ignores_all = rule.ignored_inputs.size() == n.inputs.size();
    std::vector<char> taken(n.inputs.size(), 0);
    for (const InplacePair& pair : rule.pairs) {
      const int in = graph_.entry_id(n.inputs[pair.input]);
      const int out = graph_.entry_id({node, pair.output});
      const int block = block_of_[in];
      if (taken[pair.input] || block < 0 || block_of_[out] != kNone) continue;
      if (readers_[out] == 0 || Elements(in) != Elements(out)) continue;
      if (DtypeBytes(graph_.dtypes[in]) != DtypeBytes(graph_.dtypes[out])) continue;
      const bool same = pair.identity && graph_.dtypes[in] == graph_.dtypes[out];
      if (!same && (ignores_all || blocks_[block].readers != 1)) continue;
      taken[pair.input] = 1;
      block_of_[out] = block;
      blocks_[block].entry = out;
      blocks_[block].readers += readers_[out];
    }
  }

  void Request(int worker, int entry) {
    const int64_t size = Elements(entry) * kPlannedElementBytes;
    int block = TakeFree(worker, size);
    if (block == kNone) {
      block = static_cast<int>(blocks_.size());
      blocks_.push_back({worker, size, 0, 0, 0, 0});
    }
    Block& taken = blocks_[block];
    taken.planned = std::max(taken.planned, size);
    taken.bytes = std::max(taken.bytes, Bytes(entry));
    taken.readers = readers_[entry];
    taken.live = Bytes(entry);
    taken.entry = entry;
    live_[worker] += taken.live;
    peak_[worker] = std::max(peak_[worker], live_[worker]);
    block_of_[entry] = block;
    if (worker == stop_worker_ && live_[worker] == stop_bytes_) NoteLive();
  }

  void NoteLive() {
    if (!at_stop_.empty()) return;
    std::set<int> heads;
    for (NodeEntry head : graph_.heads) heads.insert(graph_.entry_id(head));
    for (const Block& block : blocks_) {
      if (block.worker != stop_worker_ || block.live == 0) continue;
      const auto& first = graph_.first_entry;
      const auto after = std::upper_bound(first.begin(), first.end(), block.entry);
      const int node = static_cast<int>(after - first.begin()) - 1;
      at_stop_.push_back({bound_.sources[node], block.entry - first[node], block.live,
                          heads.count(block.entry) > 0});
    }
  }

  int TakeFree(int worker, int64_t size) {
    if (match_range_ == 0) return kNone;
    std::multimap<int64_t, int>& blocks = free_[worker];
    auto found = blocks.lower_bound(size);
    if (found == blocks.end() || found->first > size * match_range_) {
      if (found == blocks.begin()) return kNone;
      --found;
      if (found->first < size / match_range_) return kNone;
    }
    const int block = found->second;
    blocks.erase(found);
    return block;
  }

  void Release(int block) {
    Block& released = blocks_[block];
    live_[released.worker] -= std::exchange(released.live, 0);
    free_[released.worker].emplace(released.planned, block);
  }

  const BoundGraph& bound_;
  const Graph& graph_;
  const std::vector<int64_t>& elements_;
  const MemoryTable& table_;
  const int match_range_;
  std::vector<int64_t> readers_;  // [entry]
  std::vector<int> block_of_;     // [entry], or kNone, kExternal
  std::vector<Block> blocks_;
  std::vector<std::multimap<int64_t, int>> free_;  // [worker]: planned bytes -> block
  std::vector<int64_t> live_;                      // [worker]
  std::vector<int64_t> peak_;                      // [worker]
  int stop_worker_ = -1;
  int64_t stop_bytes_ = 0;
  std::vector<LiveTensor> at_stop_;
  std::vector<LiveMoment> moments_;
};

bool Fits(const MemoryRule& rule, const Node& node) {
  const int inputs = static_cast<int>(node.inputs.size());
  bool fits = !node.is_variable();
  for (const InplacePair& pair : rule.pairs) {
    fits = fits && pair.input >= 0 && pair.input < inputs && pair.output >= 0 &&
           pair.output < node.num_outputs;
  }
  for (int input : rule.ignored_inputs) fits = fits && input >= 0 && input < inputs;
  return fits;
}

}  // namespace

void CheckMemoryTable(const MemoryTable& table, const Graph& graph) {
  TOFU_CHECK_USER(table.node_rules.size() == graph.nodes.size(), Blame::kTable)
      << "memory rules: found rules for " << table.node_rules.size()
      << " nodes, expected one number for each of the graph's " << graph.num_nodes();
  const int num_rules = static_cast<int>(table.rules.size());
  for (int node = 0; node < graph.num_nodes(); ++node) {
    const int rule = table.node_rules[node];
    if (rule == -1) continue;
    TOFU_CHECK_USER(rule >= 0 && rule < num_rules, Blame::kTable)
        << "memory rules: found rule " << rule << " for node " << graph.nodes[node].name
        << ", expected -1 to " << num_rules - 1;
    TOFU_CHECK_USER(Fits(table.rules[rule], graph.nodes[node]), Blame::kTable)
        << "memory rules: rule " << rule << " does not fit node "
        << graph.nodes[node].name << ", expected a rule for its "
        << graph.nodes[node].inputs.size() << " inputs and "
        << graph.nodes[node].num_outputs << " outputs";
  }
}

ExecutorMemory PlanExecutorMemory(const BoundGraph& bound, const MemoryTable& table,
                                  const ExecutorMemoryOptions& options) {
  std::vector<int64_t> elements;
  elements.reserve(bound.graph.shapes.size());
  for (const Shape& shape : bound.graph.shapes) elements.push_back(NumElements(shape));
  int range = options.search_match_range ? 1 : options.match_range;
  ExecutorMemory best = Planner(bound, elements, table, options, range).Run();
  while (options.search_match_range && (range *= 2) <= options.match_range) {
    ExecutorMemory memory = Planner(bound, elements, table, options, range).Run();
    if (memory.planned_bytes < best.planned_bytes) best = std::move(memory);
  }
  Planner(bound, elements, table, options, best.match_range).Trace(&best);
  return best;
}

}  // namespace tofu
