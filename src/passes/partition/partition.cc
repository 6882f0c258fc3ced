#include "passes/partition/partition.h"

#include <algorithm>
#include <functional>
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

  // A fetch: all workers have the same ones, in the same order. Between them, each worker
  // has steps of its own.
  struct FetchStep {
    std::vector<const ProgramStep*> steps;  // [worker]
    std::vector<NodeEntry> held;            // [worker]
    std::set<int> owners;                   // whose arrays others read
    Regions regions;                        // that roots made
    bool is_replaced = false;               // whether roots make what reads the fetch
  };

  // Adds the steps in rounds. In a round no worker reads what another makes in it, so the
  // workers run one after the other, and a GPU gets a worker's operators as one
  // (schedule/segments.h). The operators behind the last fetch are a round of their own:
  // they run when all workers have read the tiles, which may then be freed.
  void AddSteps() {
    made_.resize(workers_);
    std::vector<int> next(workers_, 0);
    for (bool is_done = false; !is_done;) {
      CheckInterrupt();
      std::vector<FetchStep> round = NextRound(next);
      is_done = true;
      for (int w = 0; w < workers_; ++w) {
        for (FetchStep& fetch : round) {
          AddOwn(w, &next[w]);
          AddFetch(w, &fetch);
          ++next[w];
        }
        if (round.empty()) AddOwn(w, &next[w]);
        is_done = is_done && next[w] == NumSteps(w);
      }
    }
  }

  int NumSteps(int worker) const {
    return static_cast<int>(programs_[worker].steps.size());
  }

  // The fetches until one that reads what is not made yet.
  std::vector<FetchStep> NextRound(std::vector<int> next) {
    fetches_.BeginRound();
    std::vector<FetchStep> round;
    FetchStep fetch = NextFetch(&next);
    while (!fetch.steps.empty() && CanBegin(fetch)) {
      const bool is_gathered = IsGathered(next[0] - 1);
      FetchStep following = NextFetch(&next);
      if (is_gathered) BeginSum(&fetch, &following);
      BeginFetch(&fetch);
      round.push_back(std::move(fetch));
      fetch = std::move(following);
    }
    return round;
  }

  // Empty at the end.
  FetchStep NextFetch(std::vector<int>* next) const {
    FetchStep fetch;
    for (int w = 0; w < workers_; ++w) {
      int& number = (*next)[w];
      while (IsOwn(w, number)) ++number;
      if (number < NumSteps(w)) fetch.steps.push_back(&programs_[w].steps[number++]);
    }
    return fetch;
  }

  bool IsOwn(int worker, int number) const {
    return number < NumSteps(worker) &&
           programs_[worker].steps[number].kind != ProgramStep::Kind::kFetch;
  }

  // Whether all workers have made what others read, or roots have read it already.
  bool CanBegin(const FetchStep& fetch) const {
    if (!fetch.regions.empty() || fetch.steps[0]->received_bytes == 0) return true;
    for (int w = 0; w < workers_; ++w) {
      if (fetch.steps[w]->held.step >= static_cast<int>(made_[w].size())) return false;
    }
    return true;
  }

  // Adds a worker's next variables, constants and operators.
  void AddOwn(int worker, int* number) {
    for (; IsOwn(worker, *number); ++*number) {
      const ProgramStep& step = programs_[worker].steps[*number];
      if (step.kind == ProgramStep::Kind::kVariable) {
        AddVariable(worker, step);
      } else if (step.kind == ProgramStep::Kind::kConstant) {
        AddConstant(worker, step);
      } else {
        AddOperator(worker, step);
      }
    }
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

  void AddVariable(int worker, const ProgramStep& step) {
    const auto [found, added] =
        variables_.emplace(step.node, static_cast<int>(result_.variables.size()));
    if (added) result_.variables.push_back(WithoutNodes(step.node));
    made_[worker].emplace_back();
    if (!step.takes_part) return;
    std::string& name = result_.variables[found->second].tiles[worker].name;
    Node copy;
    copy.name = name;
    copy.attrs = WithoutTofuAttrs(graph_.nodes[step.node].attrs);
    copy.attrs.erase(kShapeAttr);
    made_[worker].back() = {
        builder_.Add(std::move(copy), worker, step.shapes, step.dtypes), 0};
    name = builder_.graph().nodes[made_[worker].back().node].name;
  }

  // A variable, before any worker has a node for it.
  PartitionedVariable WithoutNodes(int node) const {
    const Node& n = graph_.nodes[node];
    const int entry = graph_.entry_id({node, 0});
    const auto role = n.attrs.find(kRoleAttr);
    PartitionedVariable variable;
    variable.name = n.name;
    if (role != n.attrs.end()) variable.role = role->second;
    variable.shape = graph_.shapes[entry];
    variable.dtype = graph_.dtypes[entry];
    for (int w = 0; w < workers_; ++w) {
      variable.tiles.push_back(
          {AtWorker(n.name, w), w, TileOf(variable.shape, entry, w)});
    }
    return variable;
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

  // Adds the fetches of roots, if small regions go through them.
  void BeginFetch(FetchStep* fetch) {
    const ProgramStep& step = *fetch->steps[0];
    fetch->held.resize(workers_);
    if (step.received_bytes == 0 || fetch->is_replaced || !fetch->regions.empty()) return;
    std::vector<FetchSpec> specs;
    for (int w = 0; w < workers_; ++w) {
      Hold(w, fetch);
      if (fetch->steps[w]->takes_part) specs.push_back(fetch->steps[w]->spec);
    }
    const int dtype = step.dtypes[0];
    if (specs.empty() || !fetches_.IsSmall(specs[0].region, dtype)) return;
    const auto roots = fetches_.PlanRoots(specs, PlannerOf(*fetch), dtype);
    fetch->regions =
        fetches_.EmitRoots(roots, specs, fetch->held, dtype, NamesOf(*fetch));
  }

  // The same for fetches that reduce pieces of tiles and gather them, if roots serve all
  // workers: then nothing reads the pieces.
  void BeginSum(FetchStep* pieces, FetchStep* gather) {
    const ProgramStep& sum = *gather->steps[0];
    const int dtype = sum.dtypes[0];
    std::vector<FetchSpec> replaced;
    std::vector<FetchSpec> direct;
    pieces->held.resize(workers_);
    for (int w = 0; w < workers_; ++w) {
      Hold(w, pieces);
      if (!fetches_.IsSmall(sum.spec.region, dtype)) continue;
      replaced.push_back(pieces->steps[w]->spec);
      replaced.push_back(gather->steps[w]->spec);
      direct.push_back(PlannerOf(*pieces)(w, gather->steps[w]->spec.region));
    }
    const auto roots = fetches_.PlanRoots(direct, PlannerOf(*pieces), dtype);
    size_t regions = 0;
    for (const RootFetches& root : roots) regions += root.regions.size();
    if (roots.empty() || regions < direct.size()) return;
    pieces->is_replaced = true;
    gather->regions =
        fetches_.EmitRoots(roots, replaced, pieces->held, dtype, NamesOf(*gather));
  }

  static FetchPlanner PlannerOf(const FetchStep& fetch) {
    const Stage& stage = *fetch.steps[0]->stage;
    return
        [&](int worker, const Box& region) { return PlanStage(stage, worker, region); };
  }

  static std::function<std::string(int)> NamesOf(const FetchStep& fetch) {
    const ProgramStep& step = *fetch.steps[0];
    return [&](int worker) { return NameAt(step, worker); };
  }

  // Notes the array of a worker that others read at a fetch.
  void Hold(int worker, FetchStep* fetch) const {
    const ArrayId held = fetch->steps[worker]->held;
    if (held.step >= 0) fetch->held[worker] = Made(worker, held);
  }

  // The workers whose arrays others read at a fetch, but through roots.
  std::set<int> OwnersOf(const FetchStep& fetch) const {
    std::set<int> owners;
    for (int w = 0; w < workers_; ++w) {
      if (!fetch.steps[w]->takes_part || fetch.regions.count(w) > 0) continue;
      for (const FetchPiece& piece : fetch.steps[w]->spec.pieces) {
        if (piece.source != kFill && piece.source != w) owners.insert(piece.source);
      }
    }
    return owners;
  }

  void AddFetch(int worker, FetchStep* fetch) {
    const ProgramStep& step = *fetch->steps[worker];
    made_[worker].emplace_back();
    if (worker == 0) fetch->owners = OwnersOf(*fetch);
    if (!step.takes_part || fetch->is_replaced) return;
    const std::string name = NameAt(step, worker);
    const auto found = fetch->regions.find(worker);
    NodeEntry made;
    if (found != fetch->regions.end()) {
      made = found->second;
    } else {
      Hold(worker, fetch);
      if (fetch->owners.count(worker) > 0) fetches_.Share(fetch->held[worker]);
      made = fetches_.Emit(step.spec, fetch->held, step.dtypes[0], name);
    }
    if (step.makes_tile) made = fetches_.OnWorker(made, worker, name);
    made_[worker].back() = made;
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
  std::map<int, int> variables_;  // from the serial node to the result's number
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
