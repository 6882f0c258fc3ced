#include "passes/partition/partition.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "fetch/crossing.h"
#include "graph/head_roles.h"
#include "graph/lives/draws.h"
#include "graph/verify_graph.h"
#include "mxnet/dialect/dialect.h"
#include "passes/divide/head_requests.h"
#include "passes/divide/operator_parts.h"
#include "passes/divide/plan_stage.h"
#include "passes/divide/worker_program.h"
#include "passes/partition/bundle_fetches.h"
#include "passes/partition/emit_fetches.h"
#include "passes/partition/gradient_bundles.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/plain_tiles.h"
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
        view_(options.view),
        is_on_cpus_(options.crossing == Crossing::kPlainTiles),
        fetches_(options, &builder_, &result_) {
    TOFU_CHECK(static_cast<int>(plan.tensor_cuts.size()) == graph.num_entries() &&
               static_cast<int>(plan.op_cuts.size()) == graph.num_nodes())
        << "the plan is for another graph";
    TOFU_CHECK(static_cast<int>(table.node_rows.size()) == graph.num_nodes())
        << "the strategy table is for another graph";
    TOFU_CHECK(!view_ || options.fetch == FetchKind::kMultiFetch)
        << "a view of a worker whose fetches may go through roots";
  }

  Partitioned Run(const PartitionOptions& options) {
    const bool shares = options.share && options.fetch == FetchKind::kMultiFetch;
    AddMembers({options.heads, shares, options.spare_bytes, !view_});
    result_.is_view = view_.has_value();
    result_.workers = static_cast<int>(members_.size());
    result_.fetched_bytes_per_worker.assign(members_.size(), 0);
    result_.shared_bytes = programs_[0].shared_bytes;
    result_.relayed_bytes = programs_[0].relayed_bytes;
    for (const ProgramStep& step : programs_[0].steps) {
      if (view_) result_.fetched_bytes += step.received_bytes;
    }
    builder_.Reserve(graph_.num_nodes() * result_.workers);
    AddSteps();
    for (size_t head = 0; head < programs_[0].heads.size(); ++head) AddHead(head);
    KeepOutputsTogether(options.heads);
    if (options.bundle && options.fetch == FetchKind::kMultiFetch) {
      BundleFetches(BundledHeads(options), &builder_.graph(), &builder_.node_workers());
    }
    result_.graph = std::move(builder_.graph());
    if (result_.graph.first_entry.empty()) result_.graph.first_entry = {0};
    result_.node_workers = std::move(builder_.node_workers());
    if (kVerifyGraphs && !view_) {
      VerifyTiles(result_.graph, result_.variables, result_.heads, result_.workers,
                  "partition");
    }
    return std::move(result_);
  }

 private:
  // The heads that are fetched together, each with the number of its bundle. None on
  // GPUs, where every different fetch has a kernel of its own.
  std::map<int, int> BundledHeads(const PartitionOptions& options) const {
    std::map<int, int> heads;
    if (options.crossing != Crossing::kPlainTiles) return heads;
    const std::vector<int> bundles = GradientBundles(programs_[0]);
    for (size_t head = 0; head < bundles.size(); ++head) {
      if (bundles[head] < 0) continue;
      for (const HeadTile& tile : result_.heads[head].tiles) {
        heads.emplace(tile.head, bundles[head]);
      }
    }
    return heads;
  }

  // One of the workers of the graph, in the order in which they run in a round.
  struct Member {
    int number = 0;    // in the graph
    int named_as = 0;  // the worker in the names of its nodes
    const WorkerProgram* program = nullptr;
  };

  // All workers; or one, which is number 0, and what reads its tiles: a worker like it
  // that runs before it, and one that runs after it.
  void AddMembers(const ProgramOptions& options) {
    if (!view_) {
      programs_ = MakeWorkerPrograms(graph_, table_, plan_, options);
      for (const WorkerProgram& program : programs_) {
        members_.push_back({program.worker, program.worker, &program});
      }
    } else {
      programs_ = {MakeWorkerProgram(graph_, table_, plan_, *view_, options)};
      if (*view_ > 0) members_.push_back({2, *view_ - 1, &programs_[0]});
      members_.push_back({0, *view_, &programs_[0]});
      members_.push_back({1, *view_ + 1, &programs_[0]});
    }
    made_.resize(members_.size());
  }

  // A fetch: all workers have the same ones, in the same order. Between them, each worker
  // has steps of its own.
  struct FetchStep {
    std::vector<const ProgramStep*> steps;  // [member]
    std::vector<NodeEntry> held;            // [number of a member]
    std::set<int> owners;                   // numbers of those whose arrays others read
    Regions regions;                        // that roots made
    bool is_replaced = false;               // whether roots make what reads the fetch
  };

  // Adds the steps in rounds. In a round no worker reads what another makes in it, so the
  // workers run one after the other, and a GPU gets a worker's operators as one
  // (schedule/segments.h). The operators behind the last fetch are a round of their own:
  // they run when all workers have read the tiles, which may then be freed.
  void AddSteps() {
    std::vector<int> next(members_.size(), 0);
    for (bool is_done = false; !is_done;) {
      CheckInterrupt();
      std::vector<FetchStep> round = NextRound(next);
      is_done = true;
      for (size_t m = 0; m < members_.size(); ++m) {
        for (FetchStep& fetch : round) {
          AddOwn(members_[m], &next[m]);
          AddFetch(m, &fetch);
          ++next[m];
        }
        if (round.empty()) AddOwn(members_[m], &next[m]);
        is_done = is_done && next[m] == NumSteps(members_[m]);
      }
    }
  }

  static int NumSteps(const Member& member) {
    return static_cast<int>(member.program->steps.size());
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
    for (size_t m = 0; m < members_.size(); ++m) {
      const Member& member = members_[m];
      int& number = (*next)[m];
      while (IsOwn(member, number)) ++number;
      if (number < NumSteps(member)) {
        fetch.steps.push_back(&member.program->steps[number++]);
      }
    }
    return fetch;
  }

  static bool IsOwn(const Member& member, int number) {
    return number < NumSteps(member) &&
           member.program->steps[number].kind != ProgramStep::Kind::kFetch;
  }

  // Whether all workers have made what others read, or roots have read it already.
  bool CanBegin(const FetchStep& fetch) const {
    if (!fetch.regions.empty() || fetch.steps[0]->received_bytes == 0) return true;
    for (size_t m = 0; m < members_.size(); ++m) {
      const auto made = static_cast<int>(made_[members_[m].number].size());
      if (fetch.steps[m]->source.step >= made) return false;
    }
    return true;
  }

  // Adds a worker's next variables, constants and operators.
  void AddOwn(const Member& member, int* number) {
    for (; IsOwn(member, *number); ++*number) {
      const ProgramStep& step = member.program->steps[*number];
      if (step.kind == ProgramStep::Kind::kVariable) {
        AddVariable(member, step);
      } else if (step.kind == ProgramStep::Kind::kConstant) {
        AddConstant(member, step);
      } else {
        AddOperator(member, step);
      }
    }
  }

  // Whether a step of the first worker makes a piece of a tile, which the next gathers.
  bool IsGathered(int number) const {
    const std::vector<ProgramStep>& steps = programs_[0].steps;
    const size_t next = static_cast<size_t>(number) + 1;
    return next < steps.size() && steps[number].name == steps[next].name + kPiece;
  }

  void AddConstant(const Member& member, const ProgramStep& step) {
    const int number = member.number;
    const std::string name = NameAt(step, member.named_as);
    if (step.node < 0) {
      made_[number].push_back(
          builder_.Fill(name, number, step.shapes[0], step.dtypes[0], "0"));
      return;
    }
    Node constant;
    constant.op = graph_.nodes[step.node].op;
    constant.name = name;
    constant.attrs = step.attrs;
    made_[number].push_back(
        {builder_.Add(std::move(constant), number, step.shapes, step.dtypes), 0});
  }

  void AddVariable(const Member& member, const ProgramStep& step) {
    const int number = member.number;
    const auto [found, added] =
        variables_.emplace(step.node, static_cast<int>(result_.variables.size()));
    if (added) result_.variables.push_back(WithoutNodes(step.node));
    made_[number].emplace_back();
    if (!step.takes_part) return;
    std::string& name = result_.variables[found->second].tiles[number].name;
    Node copy;
    copy.name = name;
    copy.attrs = WithoutTofuAttrs(graph_.nodes[step.node].attrs);
    copy.attrs.erase(kShapeAttr);
    made_[number].back() = {
        builder_.Add(std::move(copy), number, step.shapes, step.dtypes), 0};
    name = builder_.graph().nodes[made_[number].back().node].name;
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
    variable.tiles.resize(members_.size());
    for (const Member& member : members_) {
      variable.tiles[member.number] = {
          AtWorker(n.name, member.named_as), member.number,
          TileOf(variable.shape, plan_.tensor_cuts[entry], member)};
    }
    return variable;
  }

  Box TileOf(const Shape& shape, const std::vector<int>& cuts,
             const Member& member) const {
    return TileBox(shape, cuts, plan_.division(),
                   WorkerDigits(member.program->worker, plan_.parts));
  }

  void AddOperator(const Member& member, const ProgramStep& step) {
    const int number = member.number;
    made_[number].emplace_back();
    if (!step.takes_part) return;
    const Node& n = graph_.nodes[step.node];
    Node instance;
    instance.op = n.op;
    instance.name = AtWorker(n.name, member.named_as);
    instance.attrs = step.attrs;
    instance.num_outputs = n.num_outputs;
    instance.runs_once = RunsOnce(n, table_.row(step.node));
    for (ArrayId input : step.inputs) instance.inputs.push_back(Made(number, input));
    if (is_on_cpus_) MakePlain(step.shapes, number, &instance);
    const int added = builder_.Add(std::move(instance), number, step.shapes, step.dtypes);
    made_[number].back() = {added, 0};
    instances_.emplace_back(added, step.node);
  }

  // Has an instance read a copy of its first input if it may fail on the input itself.
  void MakePlain(const std::vector<Shape>& outputs, int worker, Node* instance) {
    if (instance->inputs.empty()) return;
    NodeEntry& input = instance->inputs[0];
    if (MustReadPlain(instance->op, outputs, builder_.shape(input)) &&
        !plain_.IsPlain(input)) {
      input = builder_.PlainCopy(instance->name + "/plain", worker, input);
    }
  }

  // Each step makes one entry, or all outputs of one node.
  NodeEntry Made(int number, ArrayId array) const {
    NodeEntry entry = made_[number][array.step];
    entry.index += array.output;
    return entry;
  }

  // Adds the fetches of roots, if small regions go through them.
  void BeginFetch(FetchStep* fetch) {
    const ProgramStep& step = *fetch->steps[0];
    fetch->held.resize(members_.size());
    if (step.received_bytes == 0 || fetch->is_replaced || !fetch->regions.empty()) return;
    for (size_t m = 0; m < members_.size(); ++m) Hold(m, fetch);
    if (!fetches_.MayUseRoots()) return;
    std::vector<FetchSpec> specs;
    for (const ProgramStep* each : fetch->steps) {
      if (each->takes_part) specs.push_back(each->spec);
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
    if (!fetches_.MayUseRoots()) return;
    const ProgramStep& sum = *gather->steps[0];
    const int dtype = sum.dtypes[0];
    std::vector<FetchSpec> replaced;
    std::vector<FetchSpec> direct;
    pieces->held.resize(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) {
      Hold(m, pieces);
      if (!fetches_.IsSmall(sum.spec.region, dtype)) continue;
      replaced.push_back(pieces->steps[m]->spec);
      replaced.push_back(gather->steps[m]->spec);
      direct.push_back(
          PlannerOf(*pieces)(static_cast<int>(m), gather->steps[m]->spec.region));
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

  // Notes the array of a member that others read at a fetch.
  void Hold(size_t m, FetchStep* fetch) const {
    const ArrayId held = fetch->steps[m]->held;
    const int number = members_[m].number;
    if (held.step >= 0) fetch->held[number] = Made(number, held);
  }

  // The members whose arrays others read at a fetch, but through roots.
  std::set<int> OwnersOf(const FetchStep& fetch) const {
    if (view_) return fetch.steps[0]->sends ? std::set<int>{0} : std::set<int>{};
    std::set<int> owners;
    for (int w = 0; w < result_.workers; ++w) {
      if (!fetch.steps[w]->takes_part || fetch.regions.count(w) > 0) continue;
      for (const FetchPiece& piece : fetch.steps[w]->spec.pieces) {
        if (piece.source != kFill && piece.source != w) owners.insert(piece.source);
      }
    }
    return owners;
  }

  void AddFetch(size_t m, FetchStep* fetch) {
    const ProgramStep& step = *fetch->steps[m];
    const int number = members_[m].number;
    made_[number].emplace_back();
    if (m == 0) fetch->owners = OwnersOf(*fetch);
    if (!step.takes_part || fetch->is_replaced) return;
    const std::string name = NameAt(step, members_[m].named_as);
    const auto found = fetch->regions.find(number);
    NodeEntry made;
    if (found != fetch->regions.end()) {
      made = found->second;
    } else {
      Hold(m, fetch);
      if (fetch->owners.count(number) > 0) fetches_.Share(fetch->held[number]);
      made = view_ ? Outlined(members_[m], step, fetch->held, name)
                   : fetches_.Emit(step.spec, fetch->held, step.dtypes[0], name);
    }
    if (step.makes_tile) made = fetches_.OnWorker(made, number, name);
    made_[number].back() = made;
  }

  // A fetch of a view: reads the member's own tile, and that of the worker in view if
  // such a member reads it.
  NodeEntry Outlined(const Member& member, const ProgramStep& step,
                     const std::vector<NodeEntry>& held, const std::string& name) {
    const bool takes = member.number != 0 && IsReadBy(member, step);
    if (!takes && !step.receives) {
      FetchSpec spec = PiecesOf(step);
      spec.worker = member.number;
      for (FetchPiece& piece : spec.pieces) {
        if (piece.source != kFill) piece.source = member.number;
      }
      return fetches_.Emit(spec, held, step.dtypes[0], name);
    }
    FetchOutline outline{step.shapes[0], step.dtypes[0], member.number, {}};
    if (takes) outline.sources.push_back(0);
    const bool is_own = !step.inputs.empty() && step.inputs[0] == step.held;
    if (is_own) outline.sources.push_back(member.number);
    return fetches_.Emit(outline, held, name);
  }

  // Whether workers before, or behind, the one in view read its tile at a fetch.
  bool IsReadBy(const Member& member, const ProgramStep& step) const {
    if (!step.sends || *view_ == 0) return step.sends;
    const std::vector<SentPiece> sent = PlanSent(*step.stage, *view_);
    return std::any_of(sent.begin(), sent.end(), [&](const SentPiece& piece) {
      return (piece.reader < *view_) == (member.named_as < *view_);
    });
  }

  void AddHead(size_t number) {
    const ProgramHead& first = programs_[0].heads[number];
    PartitionedHead head;
    head.role = first.role;
    head.shape = first.shape;
    head.dtype = first.dtype;
    head.tiles.resize(members_.size());
    for (const Member& member : members_) {
      const int w = member.number;
      const NodeEntry made = Made(w, member.program->heads[number].array);
      const NodeEntry tile =
          fetches_.OnWorker(made, w, "head/" + AtWorker(first.role, member.named_as));
      head.tiles[w] = {HeadNumber(tile), w, TileOf(first.shape, first.cuts, member)};
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
  const std::optional<int> view_;  // the worker in view
  const bool is_on_cpus_;
  std::vector<WorkerProgram> programs_;
  std::vector<Member> members_;
  std::vector<std::vector<NodeEntry>> made_;    // [number of a member][step]
  std::vector<std::pair<int, int>> instances_;  // node of the result, serial node
  std::map<std::pair<int, int>, int> head_numbers_;
  std::map<int, int> variables_;  // from the serial node to the result's number
  GraphBuilder builder_;
  PlainTiles plain_{builder_.graph()};
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
