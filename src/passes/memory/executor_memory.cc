#include "passes/memory/executor_memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory_resource>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace tofu {
namespace {

constexpr int kNone = -1;
constexpr int kExternal = -2;
// The planner counts every element as a float32.
constexpr int64_t kPlannedElementBytes = 4;

// A graph in the executor's order, as the planner needs it.
class Nodes {
 public:
  Nodes(const Graph& graph, const BoundOrder& order, const MemoryTable& table)
      : order_(order), table_(table) {
    is_variable_.reserve(order.sources.size());
    ignored_.assign(order.reads.size(), 0);
    for (int place = 0; place < order.size(); ++place) {
      const int source = order.sources[place];
      is_variable_.push_back(source >= 0 && graph.nodes[source].is_variable());
      for (int input : Rule(place).ignored_inputs) {
        ignored_[order.first_read[place] + static_cast<size_t>(input)] = 1;
      }
    }
    elements_.reserve(order.entry_sources.size());
    for (int entry : order.entry_sources) {
      elements_.push_back(NumElements(graph.shapes[entry]));
      dtypes_.push_back(graph.dtypes[entry]);
      bytes_.push_back(elements_.back() * DtypeBytes(graph.dtypes[entry]));
    }
  }

  const BoundOrder& order() const { return order_; }
  const MemoryRule& Rule(int place) const {
    static const MemoryRule none;
    const int source = order_.sources[place];
    const int rule = source < 0 ? -1 : table_.node_rules[source];
    return rule < 0 ? none : table_.rules[rule];
  }
  bool IsVariable(int place) const { return is_variable_[place]; }
  // Whether only the shape of an input is read; `read`: its number in order().reads.
  bool IsIgnored(size_t read) const { return ignored_[read]; }
  int64_t Elements(int entry) const { return elements_[entry]; }
  int64_t Bytes(int entry) const { return bytes_[entry]; }
  int Dtype(int entry) const { return dtypes_[entry]; }

 private:
  const BoundOrder& order_;
  const MemoryTable& table_;
  std::vector<char> is_variable_;  // [place]
  std::vector<char> ignored_;      // [read]
  std::vector<int64_t> elements_;  // [entry]
  std::vector<int64_t> bytes_;     // [entry]
  std::vector<int> dtypes_;        // [entry]
};

class Planner {
 public:
  Planner(const Nodes& nodes, const ExecutorMemoryOptions& options, int match_range)
      : nodes_(nodes),
        order_(nodes.order()),
        match_range_(match_range),
        only_worker_(options.only_worker),
        free_(static_cast<size_t>(options.num_workers), &pool_),
        live_(static_cast<size_t>(options.num_workers), 0),
        peak_(static_cast<size_t>(options.num_workers), 0) {
    CountReaders(options.external_heads);
  }

  ExecutorMemory Run() {
    VisitAll();
    ExecutorMemory memory;
    memory.match_range = match_range_;
    memory.bytes_per_worker.assign(free_.size(), 0);
    memory.live_per_worker = peak_;
    for (const Block& block : blocks_) {
      if (Counts(block.worker)) memory.planned_bytes += block.planned;
      memory.bytes_per_worker[block.worker] += block.bytes;
    }
    memory.blocks = std::move(block_of_);
    return memory;
  }

  // Records the tensors alive over time on the worker that needs most. Called instead of
  // Run.
  void Trace(ExecutorMemory* memory) {
    const auto& needed = memory->live_per_worker;
    const auto most = std::max_element(needed.begin(), needed.end());
    traced_worker_ =
        only_worker_ < 0 ? static_cast<int>(most - needed.begin()) : only_worker_;
    head_of_.assign(block_of_.size(), -1);
    for (size_t i = 0; i < order_.heads.size(); ++i) {
      head_of_[order_.heads[i]] = static_cast<int>(i);
    }
    VisitAll();
    for (const Block& block : blocks_) {
      if (block.live > 0 && block.worker == traced_worker_) NoteLife(block);
    }
    std::stable_sort(lives_.begin(), lives_.end(),
                     [](const auto& a, const auto& b) { return a.born < b.born; });
    memory->peak_worker = traced_worker_;
    memory->moments = std::move(moments_);
    memory->lives = std::move(lives_);
  }

 private:
  struct Block {
    int worker = 0;
    int64_t planned = 0;
    int64_t bytes = 0;
    int64_t readers = 0;  // readers that have not run yet
    int64_t live = 0;     // bytes of the tensor that it holds
    int entry = 0;        // the tensor that it holds
    int born = 0;         // the traced worker's moment since which it holds it
  };

  bool Counts(int worker) const { return only_worker_ < 0 || worker == only_worker_; }

  using FreeBlocks = std::pmr::multimap<int64_t, int>;  // planned bytes -> block

  void CountReaders(const std::vector<char>& external_heads) {
    readers_.assign(order_.entry_sources.size(), 0);
    block_of_.assign(order_.entry_sources.size(), kNone);
    for (int place = 0; place < order_.size(); ++place) {
      if (nodes_.IsVariable(place)) block_of_[order_.first_entry[place]] = kExternal;
    }
    for (size_t read = 0; read < order_.reads.size(); ++read) {
      if (!nodes_.IsIgnored(read)) ++readers_[order_.reads[read]];
    }
    for (size_t i = 0; i < order_.heads.size(); ++i) {
      const int entry = order_.heads[i];
      ++readers_[entry];
      if (i < external_heads.size() && external_heads[i]) block_of_[entry] = kExternal;
    }
  }

  void VisitAll() {
    for (int place = 0; place < order_.size(); ++place) {
      if (!nodes_.IsVariable(place)) Visit(place);
    }
  }

  void Visit(int place) {
    CheckInterrupt();
    TakeOver(place, nodes_.Rule(place));
    const int begin = order_.first_entry[place];
    const int end = order_.first_entry[place + 1];
    std::vector<std::pair<int64_t, int>>& outputs = outputs_;  // without a block
    outputs.clear();
    for (int entry = begin; entry < end; ++entry) {
      if (block_of_[entry] == kNone) outputs.emplace_back(nodes_.Elements(entry), entry);
    }
    std::sort(outputs.begin(), outputs.end());
    for (auto it = outputs.rbegin(); it != outputs.rend(); ++it) {
      Request(order_.workers[place], it->second);
    }
    if (order_.workers[place] == traced_worker_) {
      moments_.push_back(order_.sources[place]);
    }
    for (size_t i = order_.first_read[place]; i < order_.first_read[place + 1]; ++i) {
      const int block = block_of_[order_.reads[i]];
      if (block < 0 || nodes_.IsIgnored(i)) continue;
      if (--blocks_[block].readers == 0) Release(block);
    }
    for (int entry = begin; entry < end; ++entry) {
      const int block = block_of_[entry];
      if (block >= 0 && blocks_[block].readers == 0) Release(block);
    }
  }

  // Gives outputs the blocks of inputs if the operator and the inputs' readers allow it.
  void TakeOver(int place, const MemoryRule& rule) {
    if (rule.pairs.empty()) return;
    const size_t first = order_.first_read[place];
    const size_t inputs = order_.first_read[place + 1] - first;
    const bool ignores_all = rule.ignored_inputs.size() == inputs;
    std::vector<char>& taken = taken_;
    taken.assign(inputs, 0);
    for (const InplacePair& pair : rule.pairs) {
      const int in = order_.reads[first + static_cast<size_t>(pair.input)];
      const int out = order_.first_entry[place] + pair.output;
      const int block = block_of_[in];
      if (taken[pair.input] || block < 0 || block_of_[out] != kNone) continue;
      if (readers_[out] == 0 || nodes_.Elements(in) != nodes_.Elements(out)) continue;
      if (nodes_.Bytes(in) != nodes_.Bytes(out)) continue;
      const bool same = pair.identity && nodes_.Dtype(in) == nodes_.Dtype(out);
      if (!same && (ignores_all || blocks_[block].readers != 1)) continue;
      taken[pair.input] = 1;
      block_of_[out] = block;
      if (blocks_[block].worker == traced_worker_) NoteLife(blocks_[block]);
      blocks_[block].born = static_cast<int>(moments_.size());
      blocks_[block].entry = out;
      blocks_[block].readers += readers_[out];
    }
  }

  void Request(int worker, int entry) {
    const int64_t size = nodes_.Elements(entry) * kPlannedElementBytes;
    int block = TakeFree(worker, size);
    if (block == kNone) {
      block = static_cast<int>(blocks_.size());
      blocks_.push_back({worker, size, 0, 0, 0, 0, 0});
    }
    const int64_t bytes = nodes_.Bytes(entry);
    Block& taken = blocks_[block];
    taken.planned = std::max(taken.planned, size);
    taken.bytes = std::max(taken.bytes, bytes);
    taken.readers = readers_[entry];
    taken.live = bytes;
    taken.entry = entry;
    taken.born = static_cast<int>(moments_.size());
    live_[worker] += taken.live;
    peak_[worker] = std::max(peak_[worker], live_[worker]);
    block_of_[entry] = block;
  }

  // Notes that the tensor in the block dies now.
  void NoteLife(const Block& block) {
    const int now = static_cast<int>(moments_.size());
    const int place = order_.place(block.entry);
    lives_.push_back({order_.sources[place], block.entry - order_.first_entry[place],
                      block.live, head_of_[block.entry], block.born, now});
  }

  int TakeFree(int worker, int64_t size) {
    if (match_range_ == 0) return kNone;
    FreeBlocks& blocks = free_[worker];
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
    if (released.worker == traced_worker_) NoteLife(released);
    live_[released.worker] -= std::exchange(released.live, 0);
    free_[released.worker].emplace(released.planned, block);
  }

  const Nodes& nodes_;
  const BoundOrder& order_;
  const int match_range_;
  const int only_worker_;
  std::vector<int64_t> readers_;  // [entry]
  std::vector<int> block_of_;     // [entry], or kNone, kExternal
  std::vector<Block> blocks_;
  std::pmr::unsynchronized_pool_resource pool_;   // for free_, which changes all the time
  std::pmr::vector<FreeBlocks> free_;             // [worker]
  std::vector<int64_t> live_;                     // [worker]
  std::vector<int64_t> peak_;                     // [worker]
  std::vector<std::pair<int64_t, int>> outputs_;  // of the visited node: elements, entry
  std::vector<char> taken_;                       // [input of the visited node]
  int traced_worker_ = -1;
  std::vector<int> head_of_;       // [entry]: the number of a head that it is, or -1
  std::vector<int> moments_;       // places of nodes of the traced worker
  std::vector<LiveTensor> lives_;  // of the traced worker
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

ExecutorMemory PlanExecutorMemory(const Graph& graph, const BoundOrder& order,
                                  const MemoryTable& table,
                                  const ExecutorMemoryOptions& options) {
  const Nodes nodes(graph, order, table);
  int range = options.search_match_range ? 1 : options.match_range;
  ExecutorMemory best = Planner(nodes, options, range).Run();
  while (options.search_match_range && (range *= 2) <= options.match_range) {
    ExecutorMemory memory = Planner(nodes, options, range).Run();
    if (memory.planned_bytes < best.planned_bytes) best = std::move(memory);
  }
  Planner(nodes, options, best.match_range).Trace(&best);
  return best;
}

}  // namespace tofu
