#include "passes/partition/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "fetch/crossing.h"
#include "graph/draws.h"
#include "graph/head_roles.h"
#include "graph/memory_order.h"
#include "graph/repeats.h"
#include "graph/verify_graph.h"
#include "mxnet/dialect/dialect.h"
#include "passes/partition/bundle_fetches.h"
#include "passes/partition/constants.h"
#include "passes/partition/emit_fetches.h"
#include "passes/partition/fetch.h"
#include "passes/partition/graph_builder.h"
#include "passes/partition/head_requests.h"
#include "passes/partition/operator_parts.h"
#include "passes/partition/plan_output.h"
#include "passes/partition/plan_route.h"
#include "passes/partition/retire.h"
#include "passes/partition/root_fetches.h"
#include "passes/partition/share_fetches.h"
#include "passes/partition/verify_tiles.h"

namespace tofu {
namespace {

constexpr char kRoleAttr[] = "__tofu_role__";
constexpr char kParameterRole[] = "parameter";
// The attribute of a shape that a script gave to a variable; its tiles differ from it.
constexpr char kShapeAttr[] = "__shape__";

// The routes of one node, in a list that is sorted by node.
template <typename Item>
struct SameNode {
  SameNode(const std::vector<Item>& routes, int node) {
    Item key;
    key.node = node;
    const auto before = [](const Item& a, const Item& b) { return a.node < b.node; };
    std::tie(first, last) = std::equal_range(routes.begin(), routes.end(), key, before);
  }
  auto begin() const { return first; }
  auto end() const { return last; }

  typename std::vector<Item>::const_iterator first;
  typename std::vector<Item>::const_iterator last;
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const StrategyTable& table, const Plan& plan,
              const PartitionOptions& options)
      : graph_(graph),
        table_(table),
        plan_(plan),
        shares_(options.share && options.fetch == FetchKind::kMultiFetch),
        workers_(plan.workers()),
        preference_(FetchPreference(plan.parts)),
        tiles_(graph.num_entries()),
        boxes_(graph.num_entries()),
        known_tiles_(graph, plan),
        parts_(graph, table, plan),
        constants_(graph, table, &builder_),
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
    const std::vector<HeadRequest> heads = RequestHeads(graph_, options.heads);
    const Needed needed = NeededBy(graph_, heads);
    const std::vector<bool>& live = needed.nodes;
    used_ = needed.entries;
    for (int node : MemoryOrder(graph_)) {
      CheckInterrupt();
      if (graph_.nodes[node].is_variable()) {
        AddVariable(node, live[node]);
      } else if (live[node]) {
        AddOperator(node);
      }
    }
    for (const HeadRequest& head : heads) AddHead(head);
    KeepOutputsTogether();
    if (shares_) ShareEqual(options.spare_bytes);
    if (options.bundle && options.fetch == FetchKind::kMultiFetch) {
      BundleFetches(ParameterTiles(), GradientHeads(options), &builder_.graph(),
                    &builder_.node_workers());
    }
    ShiftHeads(Retire(&builder_), &result_.heads);
    result_.graph = std::move(builder_.graph());
    if (result_.graph.first_entry.empty()) result_.graph.first_entry = {0};
    result_.node_workers = std::move(builder_.node_workers());
    if (kVerifyGraphs) {
      VerifyTiles(result_.graph, result_.variables, result_.heads, workers_, "partition");
    }
    return std::move(result_);
  }

 private:
  // The names of the parameters' tiles.
  std::set<std::string> ParameterTiles() const {
    std::set<std::string> names;
    for (const PartitionedVariable& variable : result_.variables) {
      if (variable.role != kParameterRole) continue;
      for (const VariableTile& tile : variable.tiles) names.insert(tile.name);
    }
    return names;
  }

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

  void AddVariable(int node, bool live) {
    const Node& n = graph_.nodes[node];
    const int entry = graph_.entry_id({node, 0});
    const std::vector<Box>& boxes = *(boxes_[entry] = &known_tiles_.Of(entry));
    const auto role = n.attrs.find(kRoleAttr);
    PartitionedVariable variable;
    variable.name = n.name;
    if (role != n.attrs.end()) variable.role = role->second;
    variable.shape = graph_.shapes[entry];
    variable.dtype = graph_.dtypes[entry];
    for (int w = 0; w < workers_; ++w) {
      VariableTile tile{AtWorker(n.name, w), w, boxes[w]};
      if (live) {
        Node copy;
        copy.name = tile.name;
        copy.attrs = WithoutTofuAttrs(n.attrs);
        copy.attrs.erase(kShapeAttr);
        const int added =
            builder_.Add(std::move(copy), w, {tile.box.Extents()}, {variable.dtype});
        tiles_[entry].push_back({added, 0});
        tile.name = builder_.graph().nodes[added].name;
      }
      variable.tiles.push_back(std::move(tile));
    }
    result_.variables.push_back(std::move(variable));
  }

  void AddOperator(int node) {
    const std::vector<OperatorPart>& parts = parts_.Of(node);
    std::vector<int> instances(workers_, -1);
    std::vector<Regions> assembled = SmallInputs(node, parts);
    AddRoutedInputs(node, parts, &assembled);
    for (int w = 0; w < workers_; ++w) {
      if (!parts[w].active) continue;
      instances[w] = AddInstance(node, w, assembled, parts[w]);
      instances_.emplace_back(instances[w], node);
    }
    for (int output = 0; output < graph_.nodes[node].num_outputs; ++output) {
      if (used_[graph_.entry_id({node, output})]) {
        AddTiles({node, output}, parts, instances);
      }
    }
  }

  int AddInstance(int node, int worker, const std::vector<Regions>& regions,
                  const OperatorPart& part) {
    const Node& n = graph_.nodes[node];
    Node instance;
    instance.op = n.op;
    instance.name = AtWorker(n.name, worker);
    instance.attrs = part.attrs;
    instance.num_outputs = n.num_outputs;
    const StrategyRow* const row = table_.row(node);
    instance.runs_once = RunsOnce(n, row);
    if (IsRepeat(n)) instance.attrs[kRepeatsAttr] = n.attrs.at(kRepeatsAttr);
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      const std::string name = instance.name + "/in" + std::to_string(slot);
      const auto assembled = regions[slot].find(worker);
      instance.inputs.push_back(
          assembled != regions[slot].end()
              ? assembled->second
              : AddInput(n.inputs[slot], part.inputs[slot], worker, name));
    }
    shapes_.clear();
    for (const Box& output : part.outputs) shapes_.push_back(output.Extents());
    return builder_.Add(std::move(instance), worker, shapes_.data(),
                        &graph_.dtypes[graph_.first_entry[node]]);
  }

  NodeEntry AddInput(NodeEntry input, const InputRegion& region, int worker,
                     const std::string& name) {
    if (region.zeros) {
      return constants_.Zeros(region.box.Extents(), graph_.dtype(input), worker, name);
    }
    return FetchFromTiles(input, region.box, region.fill, worker, name);
  }

  NodeEntry FetchFromTiles(NodeEntry input, const Box& region, const std::string& fill,
                           int worker, const std::string& name) {
    const int entry = graph_.entry_id(input);
    if ((*boxes_[entry])[worker] == region) return tiles_[entry][worker];
    FetchSpec spec = PlanTiles(entry, *boxes_[entry], worker, region);
    spec.fill = fill;
    if (shares_ && constants_.CanMake(input, region)) {
      result_.shared_bytes += FetchedBytes(spec, graph_.dtypes[entry]);
      return constants_.Make(input, region, worker, name);
    }
    return fetches_.Emit(spec, tiles_[entry], graph_.dtypes[entry], name);
  }

  // Plans how a worker assembles a region of an entry of which each worker holds a box.
  FetchSpec PlanTiles(int entry, const std::vector<Box>& boxes, int worker,
                      const Box& region) const {
    std::vector<FetchSource> sources;
    for (int w : preference_[worker]) sources.push_back({w, boxes[w]});
    return PlanFetch(worker, region, WholeBox(graph_.shapes[entry]), sources);
  }

  // Per input, the regions that workers read through roots.
  std::vector<Regions> SmallInputs(int node, const std::vector<OperatorPart>& parts) {
    const Node& n = graph_.nodes[node];
    std::vector<Regions> small(n.inputs.size());
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      const int entry = graph_.entry_id(n.inputs[slot]);
      const int dtype = graph_.dtypes[entry];
      const auto planner = [&](int worker, const Box& region) {
        return PlanTiles(entry, *boxes_[entry], worker, region);
      };
      std::vector<FetchSpec> specs;
      for (int w = 0; w < workers_; ++w) {
        if (!parts[w].active || parts[w].inputs[slot].zeros) continue;
        const Box& region = parts[w].inputs[slot].box;
        if ((*boxes_[entry])[w] == region || !fetches_.IsSmall(region, dtype) ||
            (shares_ && constants_.CanMake(n.inputs[slot], region))) {
          continue;
        }
        specs.push_back(planner(w, region));
      }
      small[slot] =
          fetches_.EmitRoots(fetches_.PlanRoots(specs, planner, dtype), specs,
                             tiles_[entry], dtype, n.name + "/in" + std::to_string(slot));
    }
    return small;
  }

  // Adds the regions that workers fetch over the plan's routes.
  void AddRoutedInputs(int node, const std::vector<OperatorPart>& parts,
                       std::vector<Regions>* regions) {
    for (const Route& route : SameNode(plan_.routes, node)) {
      Regions& found = (*regions)[route.input];
      if (found.empty()) found = EmitRoute(route, parts);
    }
  }

  Regions EmitRoute(const Route& route, const std::vector<OperatorPart>& parts) {
    const Node& n = graph_.nodes[route.node];
    const NodeEntry input = n.inputs[route.input];
    const int entry = graph_.entry_id(input);
    const std::string name = n.name + "/in" + std::to_string(route.input);
    RouteRequest request{name, {},          WholeBox(graph_.shapes[entry]),
                         "0",  route.stops, plan_.parts};
    const auto from_tiles = [&](int worker, const Box& region) {
      return PlanTiles(entry, *boxes_[entry], worker, region);
    };
    std::vector<FetchSpec> direct;
    for (int w = 0; w < workers_; ++w) {
      if (!parts[w].active) return {};
      const InputRegion& region = parts[w].inputs[route.input];
      if (shares_ && constants_.CanMake(input, region.box)) return {};
      if (region.zeros) return {};
      request.regions.push_back(region.box);
      request.fill = region.fill;
      direct.push_back(from_tiles(w, region.box));
    }
    return fetches_.EmitMoves(PlanRoute(request, from_tiles), direct, tiles_[entry],
                              graph_.dtypes[entry], name);
  }

  // Brings one output of an operator from the regions that its instances produced to its
  // tiles.
  void AddTiles(NodeEntry output, const std::vector<OperatorPart>& parts,
                const std::vector<int>& instances) {
    const int entry = graph_.entry_id(output);
    const std::vector<Box>& boxes = *(boxes_[entry] = &known_tiles_.Of(entry));
    const OutputReduction reduction =
        ReductionOf(graph_, table_, plan_, output.node, output.index);
    std::vector<NodeEntry> produced;
    for (int instance : instances) produced.push_back({instance, output.index});
    const auto is_tile = [&](int w) {
      return reduction.steps.empty() && parts[w].active &&
             parts[w].outputs[output.index] == boxes[w];
    };
    std::vector<int> workers(workers_);
    std::iota(workers.begin(), workers.end(), 0);
    if (std::all_of(workers.begin(), workers.end(), is_tile)) {
      tiles_[entry] = produced;
      return;
    }
    const OutputFetches fetches =
        PlanOutput(graph_, plan_, output, parts, reduction, boxes);
    const std::string suffix = "/out" + std::to_string(output.index);
    const auto planner = [&](int worker, const Box& region) {
      return PlanOutputRegion(graph_, plan_, output, parts, reduction, worker, region);
    };
    const Regions small = SmallTiles(entry, fetches, planner, produced,
                                     graph_.nodes[output.node].name + suffix);
    if (!fetches.gather.empty() && !small.empty()) {
      for (int w : workers) tiles_[entry].push_back(small.at(w));
      return;
    }
    const OutputRoute* const route = OutputRouteOf(output);
    if (route != nullptr && small.empty()) {
      const Regions tiles = fetches_.EmitMoves(
          PlanOutputRoute(graph_, plan_, *route, parts, reduction, boxes), AllOf(fetches),
          produced, graph_.dtypes[entry], graph_.nodes[output.node].name + suffix);
      for (int w : workers) tiles_[entry].push_back(tiles.at(w));
      return;
    }
    const auto emit = [&](const FetchSpec& spec, const std::vector<NodeEntry>& sources,
                          const std::string& name) {
      const NodeEntry made = fetches_.Emit(spec, sources, graph_.dtypes[entry], name);
      return fetches_.OnWorker(made, spec.worker, name);
    };
    std::vector<NodeEntry> made;
    for (int w : workers) {
      const std::string name = AtWorker(graph_.nodes[output.node].name, w) + suffix;
      if (is_tile(w) || small.count(w) > 0) {
        made.push_back(is_tile(w) ? produced[w] : small.at(w));
        continue;
      }
      made.push_back(emit(fetches.first[w], produced,
                          fetches.gather.empty() ? name : name + "/piece"));
    }
    tiles_[entry] = made;
    for (const FetchSpec& spec : fetches.gather) {
      tiles_[entry][spec.worker] = emit(
          spec, made, AtWorker(graph_.nodes[output.node].name, spec.worker) + suffix);
    }
  }

  // The plan's route of an output; null if there is none.
  const OutputRoute* OutputRouteOf(NodeEntry output) const {
    for (const OutputRoute& route : SameNode(plan_.output_routes, output.node)) {
      if (route.output == output.index) return &route;
    }
    return nullptr;
  }

  static std::vector<FetchSpec> AllOf(const OutputFetches& fetches) {
    std::vector<FetchSpec> all = fetches.first;
    all.insert(all.end(), fetches.gather.begin(), fetches.gather.end());
    return all;
  }

  // The tiles of an operator's output that workers get through roots. Of tiles that are
  // otherwise reduced in pieces and gathered, either all or none.
  Regions SmallTiles(int entry, const OutputFetches& fetches, const FetchPlanner& planner,
                     const std::vector<NodeEntry>& produced, const std::string& name) {
    const int dtype = graph_.dtypes[entry];
    if (!fetches_.IsSmall((*boxes_[entry])[0], dtype)) return {};
    std::vector<FetchSpec> direct = fetches.first;
    if (!fetches.gather.empty()) {
      direct.clear();
      for (int w = 0; w < workers_; ++w)
        direct.push_back(planner(w, (*boxes_[entry])[w]));
    }
    const std::vector<RootFetches> roots = fetches_.PlanRoots(direct, planner, dtype);
    size_t regions = 0;
    for (const RootFetches& root : roots) regions += root.regions.size();
    if (!fetches.gather.empty() && regions < direct.size()) return {};
    Regions tiles = fetches_.EmitRoots(roots, AllOf(fetches), produced, dtype, name);
    for (auto& [worker, tile] : tiles) {
      tile = fetches_.OnWorker(tile, worker, AtWorker(name, worker));
    }
    return tiles;
  }

  void AddHead(const HeadRequest& request) {
    const int entry = graph_.entry_id(request.entry);
    PartitionedHead head;
    head.role = request.role;
    head.shape = graph_.shapes[entry];
    head.dtype = graph_.dtypes[entry];
    for (int w = 0; w < workers_; ++w) {
      // A gradient, or a new value of a variable, has the variable's tiles.
      const Box box = request.variable < 0
                          ? (*boxes_[entry])[w]
                          : (*boxes_[graph_.entry_id({request.variable, 0})])[w];
      const std::string name = "head/" + AtWorker(request.role, w);
      const NodeEntry tile = FetchFromTiles(request.entry, box, "0", w, name);
      head.tiles.push_back({HeadNumber(fetches_.OnWorker(tile, w, name)), w, box});
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
  void KeepOutputsTogether() {
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
        if (used_[graph_.entry_id({node, output})] && !read[graph.entry_id(entry)]) {
          HeadNumber(entry);
        }
      }
    }
  }

  void ShareEqual(int64_t spare_bytes) {
    const size_t num_nodes = builder_.graph().nodes.size();
    FetchGraph fetches{&builder_.graph(),
                       &builder_.node_workers(),
                       std::vector<bool>(num_nodes, false),
                       {}};
    for (const auto& [instance, node] : instances_) {
      const StrategyRow* row = table_.row(node);
      fetches.in_place[instance] = row != nullptr && row->elementwise;
    }
    for (const PartitionedHead& head : result_.heads) {
      if (head.role != kOutputRole) continue;
      for (const HeadTile& tile : head.tiles) fetches.outputs.push_back(tile.head);
    }
    const std::vector<int64_t> shared = ShareFetches(workers_, fetches, spare_bytes);
    for (int w = 0; w < workers_; ++w) {
      result_.shared_bytes += shared[w];
      result_.fetched_bytes_per_worker[w] -= shared[w];
    }
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const bool shares_;
  const int workers_;
  const std::vector<std::vector<int>> preference_;
  std::vector<bool> used_;                      // per serial entry
  std::vector<std::vector<NodeEntry>> tiles_;   // per serial entry and worker
  std::vector<const std::vector<Box>*> boxes_;  // per serial entry: each worker's tile
  KnownTiles known_tiles_;
  KnownParts parts_;
  std::vector<Shape> shapes_;                   // of an instance's outputs
  std::vector<std::pair<int, int>> instances_;  // node of the result, serial node
  std::map<std::pair<int, int>, int> head_numbers_;
  GraphBuilder builder_;
  ConstantMaker constants_;
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
