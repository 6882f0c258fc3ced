#include "passes/partition/partition.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "fetch/crossing.h"
#include "graph/draws.h"
#include "graph/head_roles.h"
#include "graph/verify_graph.h"
#include "mxnet/dialect/dialect.h"
#include "passes/divide/head_requests.h"
#include "passes/divide/operator_parts.h"
#include "passes/divide/plan_stage.h"
#include "passes/divide/worker_program.h"
#include "passes/partition/bundle_fetches.h"
#include "passes/partition/emit_fetches.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/verify_tiles.h"

namespace tofu {
namespace {

constexpr char kRoleAttr[] = "__tofu_role__";
// The attribute of a shape that a script gave to a variable; its tiles differ from it.
constexpr char kShapeAttr[] = "__shape__";

// The operators of a worker in a row. The script hands them over one by one, and the
// others' devices must not wait for it long.
constexpr int kRun = 16;

// The name of a worker's fetch or constant: "fc1@0/in0" for "fc1/in0".
std::string NameAt(const ProgramStep& step, int worker) {
  return AtWorker(step.name.substr(0, step.place), worker) + step.name.substr(step.place);
}

class Partitioner {
 public:
  Partitioner(const Graph& graph, const StrategyTable& table, const Plan& plan,
              const PartitionOptions& options)
      : graph_(graph),
        table_(table),
        plan_(plan),
        workers_(plan.workers()),
        fetches_(options, &builder_, &result_) {
    TOFU_CHECK(static_cast<int>(plan.tensor_cuts.size()) == graph.num_entries() &&
               static_cast<int>(plan.op_cuts.size()) == graph.num_nodes())
        << "the plan is for another graph";
    TOFU_CHECK(static_cast<int>(table.node_rows.size()) == graph.num_nodes())
        << "the strategy table is for another graph";
    result_.workers = workers_;
    result_.fetched_bytes_per_worker.assign(workers_, 0);
  }

  Partitioned Run(const PartitionOptions& options) {
    builder_.Reserve(graph_.num_nodes() * workers_);
    const bool shares = options.share && options.fetch == FetchKind::kMultiFetch;
    programs_ = MakeWorkerPrograms(graph_, table_, plan_,
                                   {options.heads, shares, options.spare_bytes});
    result_.shared_bytes = programs_[0].shared_bytes;
    result_.relayed_bytes = programs_[0].relayed_bytes;
    AddSteps();
    for (size_t head = 0; head < programs_[0].heads.size(); ++head) AddHead(head);
    KeepOutputsTogether(options.heads);
    if (options.bundle && options.fetch == FetchKind::kMultiFetch) {
      BundleFetches(GradientHeads(options), &builder_.graph(), &builder_.node_workers());
    }
    result_.graph = std::move(builder_.graph());
    if (result_.graph.first_entry.empty()) result_.graph.first_entry = {0};
    result_.node_workers = std::move(builder_.node_workers());
    if (kVerifyGraphs) {
      VerifyTiles(result_.graph, result_.variables, result_.heads, workers_, "partition");
    }
    return std::move(result_);
  }

 private:
  // The heads that may be fetched together. None on GPUs, where every different fetch has
  // a kernel of its own.
  std::set<int> GradientHeads(const PartitionOptions& options) const {
    std::set<int> numbers;
    if (options.crossing != Crossing::kPlainTiles) return numbers;
    for (const PartitionedHead& head : result_.heads) {
      if (RoleKind(head.role) != kGradientKind) continue;
      for (const HeadTile& tile : head.tiles) numbers.insert(tile.head);
    }
    return numbers;
  }

  // A step of each worker. All workers have the same steps, between constants of their
  // own.
  using Steps = std::vector<const ProgramStep*>;

  // Between two exchanges, the workers run a few operators in turn: a GPU gets those as
  // one (schedule/segments.h), and no tensor lives longer.
  void AddSteps() {
    std::vector<int> next(workers_, 0);
    made_.resize(workers_);
    for (Steps steps = Next(&next); !steps.empty(); steps = Next(&next)) {
      CheckInterrupt();
      if (steps[0]->kind == ProgramStep::Kind::kVariable) {
        AddVariable(steps);
      } else if (IsGathered(next[0] - 1)) {
        AddSum(steps, Next(&next));
      } else {
        AddFetch(steps);
      }
    }
  }

  // The next variable or fetch of each worker, after its operators and constants. Empty
  // at the end.
  Steps Next(std::vector<int>* next) {
    bool has_more = true;
    while (has_more) {
      has_more = false;
      for (int w = 0; w < workers_; ++w) {
        if (AddOperators(w, &(*next)[w])) has_more = true;
      }
    }
    Steps steps;
    for (int w = 0; w < workers_; ++w) {
      const std::vector<ProgramStep>& all = programs_[w].steps;
      int& number = (*next)[w];
      if (number < static_cast<int>(all.size())) steps.push_back(&all[number++]);
    }
    return steps;
  }

  // Adds a worker's next operators and constants. Returns whether there are more before
  // its next variable or fetch.
  bool AddOperators(int worker, int* number) {
    const std::vector<ProgramStep>& all = programs_[worker].steps;
    for (int added = 0; *number < static_cast<int>(all.size()); ++added, ++*number) {
      const ProgramStep& step = all[*number];
      if (step.kind != ProgramStep::Kind::kConstant &&
          step.kind != ProgramStep::Kind::kRun) {
        return false;
      }
      if (added == kRun) return true;
      if (step.kind == ProgramStep::Kind::kConstant) {
        AddConstant(worker, step);
      } else {
        AddOperator(worker, step);
      }
    }
    return false;
  }

  // Whether a step of the first worker makes a piece of a tile, which the next gathers.
  bool IsGathered(int number) const {
    const std::vector<ProgramStep>& steps = programs_[0].steps;
    const size_t next = static_cast<size_t>(number) + 1;
    return next < steps.size() && steps[number].name == steps[next].name + kPiece;
  }

  void AddConstant(int worker, const ProgramStep& step) {
    const std::string name = NameAt(step, worker);
    if (step.node < 0) {
      made_[worker].push_back(
          builder_.Fill(name, worker, step.shapes[0], step.dtypes[0], "0"));
      return;
    }
    Node constant;
    constant.op = graph_.nodes[step.node].op;
    constant.name = name;
    constant.attrs = step.attrs;
    made_[worker].push_back(
        {builder_.Add(std::move(constant), worker, step.shapes, step.dtypes), 0});
  }

  void AddVariable(const Steps& steps) {
    const Node& n = graph_.nodes[steps[0]->node];
    const int entry = graph_.entry_id({steps[0]->node, 0});
    const auto role = n.attrs.find(kRoleAttr);
    PartitionedVariable variable;
    variable.name = n.name;
    if (role != n.attrs.end()) variable.role = role->second;
    variable.shape = graph_.shapes[entry];
    variable.dtype = graph_.dtypes[entry];
    for (int w = 0; w < workers_; ++w) {
      VariableTile tile{AtWorker(n.name, w), w, TileOf(variable.shape, entry, w)};
      made_[w].emplace_back();
      if (steps[w]->takes_part) {
        Node copy;
        copy.name = tile.name;
        copy.attrs = WithoutTofuAttrs(n.attrs);
        copy.attrs.erase(kShapeAttr);
        made_[w].back() = {
            builder_.Add(std::move(copy), w, steps[w]->shapes, steps[w]->dtypes), 0};
        tile.name = builder_.graph().nodes[made_[w].back().node].name;
      }
      variable.tiles.push_back(std::move(tile));
    }
    result_.variables.push_back(std::move(variable));
  }

  Box TileOf(const Shape& shape, int entry, int worker) const {
    return TileBox(shape, plan_.tensor_cuts[entry], plan_.division(),
                   WorkerDigits(worker, plan_.parts));
  }

  void AddOperator(int worker, const ProgramStep& step) {
    made_[worker].emplace_back();
    if (!step.takes_part) return;
    const Node& n = graph_.nodes[step.node];
    Node instance;
    instance.op = n.op;
    instance.name = AtWorker(n.name, worker);
    instance.attrs = step.attrs;
    instance.num_outputs = n.num_outputs;
    instance.runs_once = RunsOnce(n, table_.row(step.node));
    for (ArrayId input : step.inputs) instance.inputs.push_back(Made(worker, input));
    const int added = builder_.Add(std::move(instance), worker, step.shapes, step.dtypes);
    made_[worker].back() = {added, 0};
    instances_.emplace_back(added, step.node);
  }

  // Each step makes one entry, or all outputs of one node.
  NodeEntry Made(int worker, ArrayId array) const {
    NodeEntry entry = made_[worker][array.step];
    entry.index += array.output;
    return entry;
  }

  void AddFetch(const Steps& steps) {
    const int dtype = steps[0]->dtypes[0];
    std::vector<NodeEntry> held(workers_);
    std::vector<FetchSpec> specs;
    for (int w = 0; w < workers_; ++w) {
      if (steps[w]->held.step >= 0) held[w] = Made(w, steps[w]->held);
      if (steps[w]->takes_part) specs.push_back(steps[w]->spec);
    }
    const Regions regions = SmallRegions(*steps[0], specs, held);
    fetches_.BeginStage();
    for (int w = 0; w < workers_; ++w) {
      made_[w].emplace_back();
      if (!steps[w]->takes_part) continue;
      const std::string name = NameAt(*steps[w], w);
      const auto found = regions.find(w);
      NodeEntry& made = made_[w].back();
      made = found != regions.end() ? found->second
                                    : fetches_.Emit(steps[w]->spec, held, dtype, name);
      if (steps[w]->makes_tile) made = fetches_.OnWorker(made, w, name);
    }
  }

  // The regions of a fetch that workers get through roots.
  Regions SmallRegions(const ProgramStep& step, const std::vector<FetchSpec>& specs,
                       const std::vector<NodeEntry>& held) {
    const int dtype = step.dtypes[0];
    if (specs.empty() || !fetches_.IsSmall(specs[0].region, dtype)) return {};
    const auto planner = [&](int worker, const Box& region) {
      return PlanStage(*step.stage, worker, region);
    };
    return fetches_.EmitRoots(fetches_.PlanRoots(specs, planner, dtype), specs, held,
                              dtype, [&](int worker) { return NameAt(step, worker); });
  }

  // Adds the fetches that reduce pieces of tiles and gather them. Small tiles are reduced
  // by a root instead, if it serves all workers.
  void AddSum(const Steps& pieces, const Steps& gathers) {
    const ProgramStep& sum = *gathers[0];
    const int dtype = sum.dtypes[0];
    const auto planner = [&](int worker, const Box& region) {
      return PlanStage(*pieces[0]->stage, worker, region);
    };
    std::vector<FetchSpec> replaced;
    std::vector<FetchSpec> direct;
    std::vector<NodeEntry> held(workers_);
    for (int w = 0; w < workers_ && fetches_.IsSmall(sum.spec.region, dtype); ++w) {
      if (pieces[w]->held.step >= 0) held[w] = Made(w, pieces[w]->held);
      replaced.push_back(pieces[w]->spec);
      replaced.push_back(gathers[w]->spec);
      direct.push_back(planner(w, gathers[w]->spec.region));
    }
    const std::vector<RootFetches> roots = fetches_.PlanRoots(direct, planner, dtype);
    size_t regions = 0;
    for (const RootFetches& root : roots) regions += root.regions.size();
    if (roots.empty() || regions < direct.size()) {
      AddFetch(pieces);
      AddFetch(gathers);
      return;
    }
    const Regions tiles = fetches_.EmitRoots(
        roots, replaced, held, dtype, [&](int worker) { return NameAt(sum, worker); });
    for (int w = 0; w < workers_; ++w) {
      made_[w].emplace_back();  // nothing reads the piece
      made_[w].push_back(fetches_.OnWorker(tiles.at(w), w, NameAt(sum, w)));
    }
  }

  void AddHead(size_t number) {
    const ProgramHead& first = programs_[0].heads[number];
    PartitionedHead head;
    head.role = first.role;
    head.shape = first.shape;
    head.dtype = first.dtype;
    for (int w = 0; w < workers_; ++w) {
      const Box box = TileBox(first.shape, first.cuts, plan_.division(),
                              WorkerDigits(w, plan_.parts));
      const NodeEntry made = Made(w, programs_[w].heads[number].array);
      const NodeEntry tile =
          fetches_.OnWorker(made, w, "head/" + AtWorker(first.role, w));
      head.tiles.push_back({HeadNumber(tile), w, box});
    }
    result_.heads.push_back(std::move(head));
  }

  // The number of an entry's head. An entry that several heads name is one head of the
  // partitioned graph.
  int HeadNumber(NodeEntry entry) {
    auto& heads = builder_.graph().heads;
    const auto [found, added] = head_numbers_.emplace(
        std::make_pair(entry.node, entry.index), static_cast<int>(heads.size()));
    if (added) heads.push_back(entry);
    return found->second;
  }

  // If one output of an instance is read, makes unread outputs heads, so that the
  // instance writes all outputs that the serial operator writes. Other sets of outputs
  // may be computed wrong: for example, without the weight gradient, operators also leave
  // out the bias gradient.
  void KeepOutputsTogether(const std::optional<std::vector<std::string>>& roles) {
    const std::vector<bool> used = NeededBy(graph_, RequestHeads(graph_, roles)).entries;
    const Graph& graph = builder_.graph();
    std::vector<bool> read(graph.num_entries(), false);
    std::vector<bool> live(graph.num_nodes(), false);
    const auto mark = [&](NodeEntry entry) {
      read[graph.entry_id(entry)] = true;
      live[entry.node] = true;
    };
    for (NodeEntry head : graph.heads) mark(head);
    for (int node = graph.num_nodes() - 1; node >= 0; --node) {
      if (!live[node]) continue;
      for (NodeEntry input : graph.nodes[node].inputs) mark(input);
    }
    for (const auto& [instance, node] : instances_) {
      for (int output = 0; live[instance] && output < graph_.nodes[node].num_outputs;
           ++output) {
        const NodeEntry entry{instance, output};
        if (used[graph_.entry_id({node, output})] && !read[graph.entry_id(entry)]) {
          HeadNumber(entry);
        }
      }
    }
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const int workers_;
  std::vector<WorkerProgram> programs_;         // [worker]
  std::vector<std::vector<NodeEntry>> made_;    // [worker][step]
  std::vector<std::pair<int, int>> instances_;  // node of the result, serial node
  std::map<std::pair<int, int>, int> head_numbers_;
  GraphBuilder builder_;
  Partitioned result_;
  FetchEmitter fetches_;
};

}  // namespace

FetchKind ParseFetchKind(const std::string& name) {
  TOFU_CHECK_USER(name == "plain" || name == "multifetch", Blame::kPlan)
      << "partition: found fetch \"" << name
      << "\", expected \"plain\" or \"multifetch\"; choose one of them";
  return name == "plain" ? FetchKind::kPlain : FetchKind::kMultiFetch;
}

Partitioned PartitionGraph(const Graph& graph, const StrategyTable& table,
                           const Plan& plan, const PartitionOptions& options) {
  return Partitioner(graph, table, plan, options).Run(options);
}

}  // namespace tofu
