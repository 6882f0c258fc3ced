#include "passes/divide/worker_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "graph/lives/memory_order.h"
#include "graph/lives/repeats.h"
#include "mxnet/dialect/dialect.h"
#include "passes/divide/constants.h"
#include "passes/divide/head_requests.h"
#include "passes/divide/operator_parts.h"
#include "passes/divide/overlapping_workers.h"
#include "passes/divide/plan_stage.h"
#include "passes/divide/share_regions.h"

namespace tofu {
namespace {

using Kind = ProgramStep::Kind;

bool IsSame(const GroupBoxes& a, const GroupBoxes& b) {
  const auto same = [](const Intervals& x, const Intervals& y) {
    return x.steps == y.steps && x.begin == y.begin && x.end == y.end;
  };
  return a.first_only == 0 && b.first_only == 0 && a.dims.size() == b.dims.size() &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), same);
}

std::vector<int> DividedDims(const GroupBoxes& boxes) {
  std::vector<int> dims;
  for (size_t d = 0; d < boxes.dims.size(); ++d) {
    if (boxes.dims[d].steps != 0) dims.push_back(static_cast<int>(d));
  }
  return dims;
}

// Appends numbers that are equal for equal boxes.
void Append(const GroupBoxes& boxes, std::vector<int64_t>* numbers) {
  numbers->push_back(boxes.first_only);
  for (const Intervals& dim : boxes.dims) {
    numbers->push_back(dim.steps);
    numbers->insert(numbers->end(), dim.begin.begin(), dim.begin.end());
    numbers->insert(numbers->end(), dim.end.begin(), dim.end.end());
  }
}

// The most bytes of a constant that readers share; it lives until its last reader. Each
// reader of a larger constant has its own.
constexpr int64_t kSharedConstantBytes = 16 << 10;

void CheckRoute(bool fits, const std::string& name, const std::string& found) {
  TOFU_CHECK_USER(fits, Blame::kPlan)
      << "plan: the route of " << name << " has " << found
      << ", expected pieces of a region that workers need alike; make the plan again "
         "from this graph";
}

// The pieces of boxes at a stop of a route.
GroupBoxes RoutePieces(const std::string& name, const GroupBoxes& boxes,
                       const TileSplits& splits, const std::vector<int>& parts) {
  GroupBoxes pieces = boxes;
  for (const TileSplit& split : splits) {
    CheckRoute(!HasStep(StepsOf(boxes), split.step), name, "workers of unlike regions");
    const Intervals& whole = pieces.dims[split.dim];
    for (size_t i = 0; i < whole.begin.size(); ++i) {
      CheckRoute(CanCut(whole.end[i] - whole.begin[i], parts[split.step]), name,
                 "a stop along a dimension with too few elements");
    }
    pieces = Pieces(pieces, {split});
  }
  return pieces;
}

// The steps by which a stop divides pieces of another one further.
StepSet StepsBetween(const std::string& name, const TileSplits& smaller,
                     const TileSplits& larger) {
  CheckRoute(larger.size() < smaller.size() &&
                 std::equal(larger.begin(), larger.end(), smaller.begin()),
             name, "a stop that does not divide another one");
  StepSet steps = 0;
  for (size_t i = larger.size(); i < smaller.size(); ++i) {
    steps |= StepSet{1} << smaller[i].step;
  }
  return steps;
}

int64_t NumTerms(const Stage& stage) {
  int64_t terms = 1;
  for (size_t step = 0; step < stage.needs.parts.size(); ++step) {
    if (HasStep(stage.reduces, step)) terms *= stage.needs.parts[step];
  }
  return terms;
}

// The elements that all workers fetch in a stage.
int64_t ElementsOf(const Stage& stage) {
  return NumTerms(stage) * SumOverlap(stage.needs, stage.needs) -
         SumOverlap(stage.needs, stage.holders);
}

// A fetch as all workers know it.
struct Request {
  std::string name;
  size_t place = 0;
  Stage stage;
  ArrayId held;    // this worker's, of the boxes that are held
  ArrayId source;  // the same array on the workers that make it last
  int dtype = 0;
  int64_t elements = 0;  // fetched by all workers
  bool makes_tile = false;
  std::optional<Weights> weights = {};  // of weighted terms, in the dimensions of `stage`
};

// The boxes in some of their dimensions.
GroupBoxes Along(const GroupBoxes& boxes, const std::vector<int>& dims) {
  GroupBoxes found = boxes;
  found.dims.clear();
  for (int dim : dims) found.dims.push_back(boxes.dims[static_cast<size_t>(dim)]);
  found.volume = SumOverlap(found, found);
  return found;
}

Box Along(const Box& box, const std::vector<int>& dims) {
  Box found;
  for (int dim : dims) {
    found.begin.push_back(box.begin[static_cast<size_t>(dim)]);
    found.end.push_back(box.end[static_cast<size_t>(dim)]);
  }
  return found;
}

class Builder {
 public:
  Builder(const Graph& graph, const StrategyTable& table, const Plan& plan, int worker,
          const ProgramOptions& options, bool for_all, bool pieces)
      : graph_(graph),
        table_(table),
        plan_(plan),
        options_(options),
        for_all_(for_all),
        pieces_(pieces),
        worker_(worker),
        digits_(WorkerDigits(worker, plan.parts)),
        tiles_(graph.num_entries()),
        tile_boxes_(graph.num_entries()),
        makers_(graph.num_entries()) {
    program_.worker = worker;
  }

  WorkerProgram Run() {
    const std::vector<HeadRequest> heads = RequestHeads(graph_, options_.heads);
    const Needed needed = NeededBy(graph_, heads);
    for (int node : MemoryOrder(graph_)) {
      CheckInterrupt();
      if (graph_.nodes[node].is_variable()) {
        AddVariable(node, needed.nodes[node]);
      } else if (needed.nodes[node]) {
        AddOperator(node, needed.entries);
      }
    }
    for (const HeadRequest& head : heads) AddHead(head);
    return std::move(program_);
  }

 private:
  int Add(ProgramStep step) {
    program_.steps.push_back(std::move(step));
    return static_cast<int>(program_.steps.size()) - 1;
  }

  // The tiles of an entry, computed once for all entries of a shape that are cut alike.
  const GroupBoxes* TilesOf(int entry) {
    const auto key = std::make_pair(graph_.shapes[entry], plan_.tensor_cuts[entry]);
    const auto found = known_tiles_.find(key);
    if (found != known_tiles_.end()) return &found->second;
    return &known_tiles_
                .emplace(key, TileBoxes(key.first, Cuts(key.second), plan_.division()))
                .first->second;
  }

  void AddVariable(int node, bool is_needed) {
    const int entry = graph_.entry_id({node, 0});
    tile_boxes_[entry] = TilesOf(entry);
    ProgramStep step;
    step.kind = Kind::kVariable;
    step.name = graph_.nodes[node].name;
    step.node = node;
    step.takes_part = is_needed;
    step.shapes = {BoxAt(*tile_boxes_[entry], digits_).Extents()};
    step.dtypes = {graph_.dtypes[entry]};
    tiles_[entry] = {Add(std::move(step)), 0};
    makers_[entry] = tiles_[entry];
  }

  void AddOperator(int node, const std::vector<bool>& used) {
    const Node& n = graph_.nodes[node];
    const OperatorPart part = PartOf(graph_, table_, plan_, node, worker_);
    const OperatorRegions regions(graph_, table_, node, Cuts(plan_.op_cuts[node]),
                                  plan_.division());
    ProgramStep step;
    step.name = n.name;
    step.node = node;
    step.takes_part = part.active;
    step.attrs = part.attrs;
    if (IsRepeat(n)) step.attrs[kRepeatsAttr] = n.attrs.at(kRepeatsAttr);
    for (size_t slot = 0; slot < n.inputs.size(); ++slot) {
      AddInput(node, static_cast<int>(slot), part, regions, &step);
    }
    for (int output = 0; output < n.num_outputs; ++output) {
      step.shapes.push_back(part.outputs[output].Extents());
      step.dtypes.push_back(graph_.dtype({node, output}));
    }
    const int run = Add(std::move(step));
    for (int output = 0; output < n.num_outputs; ++output) {
      if (used[graph_.entry_id({node, output})]) AddOutput({run, output}, part, regions);
    }
  }

  // Whether regions of the slot may reach outside the tensor.
  bool IsPadded(int node, int slot) const {
    const StrategyRow* row = table_.row(node);
    if (row == nullptr || slot >= static_cast<int>(row->inputs.size())) return false;
    const std::optional<Padding>& pad = row->inputs[slot].pad;
    const std::vector<int>& cuts = plan_.op_cuts[node];
    return pad && std::any_of(cuts.begin(), cuts.end(), [&](int cut) {
             return std::count(pad->vars.begin(), pad->vars.end(), cut) > 0;
           });
  }

  void AddInput(int node, int slot, const OperatorPart& part,
                const OperatorRegions& regions, ProgramStep* reader) {
    const NodeEntry input = graph_.nodes[node].inputs[slot];
    const int entry = graph_.entry_id(input);
    const InputRegion& region = part.inputs[slot];
    const GroupBoxes& tiles = *tile_boxes_[entry];
    const GroupBoxes needs = regions.Read(slot, tiles);
    const StepSet adds = regions.AddsToRead(slot, tiles);
    const std::string name = graph_.nodes[node].name + "/in" + std::to_string(slot);
    const size_t place = graph_.nodes[node].name.size();
    const bool is_padded = IsPadded(node, slot);
    if (!is_padded && adds == 0 && IsSame(needs, tiles)) {
      reader->inputs.push_back(tiles_[entry]);
      reader->after.push_back(makers_[entry].step);
      return;
    }
    if (options_.share && !is_padded && adds == 0 && region.box.Volume() > 0 &&
        !region.zeros && IsConstantAlong(graph_, table_, input, DividedDims(needs))) {
      program_.shared_bytes +=
          regions.InputElements(slot, tiles) * DtypeBytes(graph_.dtypes[entry]);
      reader->inputs.push_back(Constant(input, region.box, name, place));
      return;
    }
    Request request{name,
                    place,
                    {tiles, adds, Reducer::kSum, needs, WholeBox(graph_.shapes[entry])},
                    tiles_[entry],
                    makers_[entry],
                    graph_.dtypes[entry],
                    regions.InputElements(slot, tiles)};
    const Route* const route = RouteOf(node, slot, regions);
    if (route != nullptr) {
      program_.relayed_bytes -= request.elements * DtypeBytes(request.dtype);
      request = AlongRoute(route->stops, request);
    }
    const bool is_tile = route == nullptr && adds == 0 && !region.zeros &&
                         BoxAt(tiles, digits_) == region.box;
    const bool fetches = reader->takes_part && !region.zeros && !is_tile;
    const int fetch = AddFetch(request, region.box, fetches, region.fill);
    // Few operators read the same padded region.
    if (!is_padded && adds == 0) SetKey(entry, needs, region.fill, fetch);
    reader->after.push_back(fetch);
    if (region.zeros) {
      reader->inputs.push_back(
          Zeros(region.box.Extents(), graph_.dtypes[entry], name, place));
    } else {
      reader->inputs.push_back(is_tile ? tiles_[entry] : ArrayId{fetch, 0});
    }
  }

  // Notes which regions of an entry's tiles a fetch assembles.
  void SetKey(int entry, const GroupBoxes& needs, const std::string& fill, int fetch) {
    const int next = static_cast<int>(region_numbers_.size());
    std::vector<int64_t> numbers;
    Append(needs, &numbers);
    const auto [found, is_new] = region_numbers_.try_emplace(std::move(numbers), next);
    program_.steps[fetch].key = {entry, found->second, fill};
  }

  int AddFetch(const Request& request, const Box& region, bool takes_part,
               const std::string& fill = "0") {
    const int weights = request.weights ? AddWeights(request, region, takes_part) : -1;
    ProgramStep step;
    step.kind = Kind::kFetch;
    step.name = request.name;
    step.place = request.place;
    step.takes_part = takes_part;
    step.shapes = {region.Extents()};
    step.dtypes = {request.dtype};
    step.after = {request.source.step};
    step.held = request.held;
    step.source = request.source;
    step.makes_tile = request.makes_tile;
    step.received_bytes = request.elements * DtypeBytes(request.dtype);
    step.stage = std::make_shared<const Stage>(request.stage);
    step.spec.worker = worker_;
    if (takes_part) {
      step.spec = SpecOf(request.stage, worker_, region);
      step.spec.fill = fill;
      if (pieces_) step.spec = PiecesOf(step);
      step.receives = Receives(request.stage, worker_, region);
      if (ReadsOwn(request.stage, worker_, region)) step.inputs = {request.held};
    }
    if (weights >= 0) {
      step.after.push_back(weights);
      step.weighted_dims = request.weights->dims;
      if (takes_part) step.inputs.push_back({weights, 0});
    }
    if (!for_all_) step.stage = nullptr;
    if (for_all_ && step.received_bytes > 0) {
      step.sends = Sends(request.stage, worker_);
      if (pieces_) step.sent = PlanSent(request.stage, worker_);
      step.pattern = PatternIn(request.stage);
    }
    return Add(std::move(step));
  }

  // Fetches the weights of the terms that a request combines: each term's, for itself.
  int AddWeights(const Request& request, const Box& region, bool takes_part) {
    const std::vector<int>& dims = request.weights->dims;
    const auto of_weights = [&](ArrayId array) {
      return array.step < 0 ? array : ArrayId{array.step, request.weights->output};
    };
    const Stage& stage = request.stage;
    Request terms{request.name + "/weights",
                  request.place,
                  {Along(stage.holders, dims), stage.reduces, Reducer::kApart,
                   Along(stage.needs, dims), Along(stage.tensor, dims), stage.alike},
                  of_weights(request.held),
                  of_weights(request.source),
                  program_.steps[request.source.step].dtypes[request.weights->output]};
    terms.elements = ElementsOf(terms.stage);
    program_.relayed_bytes += terms.elements * DtypeBytes(terms.dtype);
    const int fetch = AddFetch(terms, Along(region, dims), takes_part);
    Shape& shape = program_.steps[fetch].shapes[0];
    shape.insert(shape.begin(), NumTerms(terms.stage));
    return fetch;
  }

  // Operators of many layers have equal stages.
  const std::vector<SenderPattern>& PatternIn(const Stage& stage) {
    std::vector<int64_t> numbers = {stage.reduces, stage.alike};
    Append(stage.holders, &numbers);
    Append(stage.needs, &numbers);
    const auto [found, is_new] = patterns_.try_emplace(std::move(numbers));
    if (is_new) found->second = PatternOf(stage);
    return found->second;
  }

  ArrayId Zeros(const Shape& shape, int dtype, const std::string& name, size_t place) {
    ProgramStep step;
    step.name = name + "/zeros";
    step.place = place;
    step.shapes = {shape};
    step.dtypes = {dtype};
    return AddConstant(std::move(step));
  }

  ArrayId Constant(NodeEntry output, const Box& region, const std::string& name,
                   size_t place) {
    ProgramStep step;
    step.name = name + "/constant";
    step.place = place;
    step.node = output.node;
    step.attrs = WithoutTofuAttrs(graph_.nodes[output.node].attrs);
    step.attrs[table_.row(output.node)->attrs[0].name] = TupleText(region.Extents());
    step.shapes = {region.Extents()};
    step.dtypes = {graph_.dtype(output)};
    return AddConstant(std::move(step));
  }

  // Readers share small constants.
  ArrayId AddConstant(ProgramStep step) {
    step.kind = Kind::kConstant;
    const Shape& shape = step.shapes[0];
    const auto key = std::make_tuple(step.node, step.dtypes[0], shape);
    const auto found = constants_.find(key);
    if (found != constants_.end()) return found->second;
    const bool is_small =
        NumElements(shape) * DtypeBytes(step.dtypes[0]) <= kSharedConstantBytes;
    const ArrayId made{Add(std::move(step)), 0};
    if (is_small) constants_.emplace(key, made);
    return made;
  }

  // The plan's route of an input; null if workers fetch it directly.
  const Route* RouteOf(int node, int slot, const OperatorRegions& regions) const {
    if (regions.Boxes(false, slot).first_only != 0) return nullptr;
    for (const Route& route : plan_.routes) {
      if (route.node == node && route.input == slot) return &route;
    }
    return nullptr;
  }

  const OutputRoute* OutputRouteOf(int node, int output) const {
    for (const OutputRoute& route : plan_.output_routes) {
      if (route.node == node && route.output == output) return &route;
    }
    return nullptr;
  }

  // Fetches pieces of what a request needs, stop after stop. Returns the request that
  // gathers the last pieces.
  Request AlongRoute(const std::vector<TileSplits>& stops, Request request) {
    const GroupBoxes needs = request.stage.needs;
    const std::string name = request.name;
    for (size_t stop = 0; stop < stops.size(); ++stop) {
      request.stage.needs = RoutePieces(name, needs, stops[stop], plan_.parts);
      Move(name + "/stop" + std::to_string(stop + 1), &request);
      const bool is_last = stop + 1 == stops.size();
      const TileSplits next = is_last ? TileSplits() : stops[stop + 1];
      request.stage.alike = ~StepsBetween(name, stops[stop], next);
    }
    request.name = name;
    request.stage.needs = needs;
    request.elements = ElementsOf(request.stage);
    program_.relayed_bytes += request.elements * DtypeBytes(request.dtype);
    return request;
  }

  // Fetches what the request needs, and lets it continue from there.
  void Move(const std::string& name, Request* request) {
    request->name = name;
    request->elements = ElementsOf(request->stage);
    request->makes_tile = true;
    program_.relayed_bytes += request->elements * DtypeBytes(request->dtype);
    const int moved = AddFetch(*request, BoxAt(request->stage.needs, digits_), true);
    request->held = request->source = {moved, 0};
    request->stage.holders = request->stage.needs;
    request->stage.reduces = 0;
    request->makes_tile = false;
  }

  // Brings an output of an operator from the regions that its parts produced to its
  // tiles; `made` is this worker's part of it.
  void AddOutput(ArrayId made, const OperatorPart& part, const OperatorRegions& regions) {
    const int node = program_.steps[made.step].node;
    const int index = made.output;
    const int entry = graph_.entry_id({node, index});
    tile_boxes_[entry] = TilesOf(entry);
    const GroupBoxes tiles = regions.Made(index, *tile_boxes_[entry]);
    const GroupBoxes& produced = regions.Boxes(true, index);
    const OutputReduction reduction = ReductionOf(graph_, table_, plan_, node, index);
    const StepSet reduces = regions.ReducesToMake(index, tiles);
    tiles_[entry] = made;
    makers_[entry] = made;
    if (reduces == 0 && IsSame(produced, tiles)) return;
    const std::string name = graph_.nodes[node].name + "/out" + std::to_string(index);
    const ArrayId held = part.active ? made : ArrayId{};
    const OutputWay way = regions.CheapestWay(index, tiles);
    const Box tile = BoxAt(tiles, digits_);
    const bool is_zeros = IsBehindTheFirst(tiles);
    Request request{
        name,
        graph_.nodes[node].name.size(),
        {produced, reduces, reduction.reduce, tiles, WholeBox(graph_.shapes[entry])},
        held,
        made,
        graph_.dtypes[entry],
        way.elements,
        true,
        reduces == 0 ? std::nullopt : reduction.weights};
    const OutputRoute* const route = OutputRouteOf(node, index);
    if (route != nullptr) {
      CheckRoute(!request.weights, name, "parts of weighted terms");
      request = AlongOutputRoute(*route, request);
    } else if (!way.splits.empty()) {
      request.stage.needs = Pieces(tiles, way.splits);
      const int64_t gathered = tiles.volume - request.stage.needs.volume;
      request.name = name + kPiece;
      request.elements = way.elements - gathered;
      const int piece = AddFetch(request, BoxAt(request.stage.needs, digits_), !is_zeros);
      request = {name,
                 request.place,
                 {request.stage.needs, 0, Reducer::kSum, tiles, request.stage.tensor},
                 is_zeros ? ArrayId{} : ArrayId{piece, 0},
                 {piece, 0},
                 request.dtype,
                 gathered,
                 true};
    } else {
      const bool is_tile = reduces == 0 && part.active && part.outputs[index] == tile;
      const int fetch = AddFetch(request, tile, !is_tile && !is_zeros);
      makers_[entry] = {fetch, 0};
      if (!is_tile) tiles_[entry] = TileFrom(fetch, entry, is_zeros);
      return;
    }
    const int gather = AddFetch(request, tile, !is_zeros);
    makers_[entry] = {gather, 0};
    tiles_[entry] = TileFrom(gather, entry, is_zeros);
  }

  // Adds up terms piece by piece, as AlongRoute fetches pieces of the sums.
  Request AlongOutputRoute(const OutputRoute& route, Request request) {
    const std::string name = request.name;
    const GroupBoxes made = request.stage.holders;
    const StepSet reduces = request.stage.reduces;
    const GroupBoxes tiles = request.stage.needs;
    program_.relayed_bytes -= request.elements * DtypeBytes(request.dtype);
    StepSet added = 0;
    TileSplits before;
    for (size_t stop = 0; stop < route.partial.size(); ++stop) {
      const TileSplits& splits = route.partial[stop];
      const StepSet adds = StepsBetween(name, splits, before);
      CheckRoute((adds & ~(reduces & ~added)) == 0, name, "a sum of what is no term");
      request.stage.reduces = adds;
      request.stage.needs = RoutePieces(name, made, splits, plan_.parts);
      added |= adds;
      request.stage.alike = reduces & ~added;
      Move(name + "/sum" + std::to_string(stop + 1), &request);
      before = splits;
    }
    request.stage.reduces = reduces & ~added;
    request.stage.alike = 0;
    request.stage.needs = tiles;
    request.name = name;
    request = AlongRoute(route.stops, request);
    request.makes_tile = true;
    return request;
  }

  // Whether the boxes leave this worker none, because those of earlier digits have them.
  bool IsBehindTheFirst(const GroupBoxes& boxes) const {
    for (size_t step = 0; step < digits_.size(); ++step) {
      if (HasStep(boxes.first_only, step) && digits_[step] != 0) return true;
    }
    return false;
  }

  // The worker's tile: what the fetch makes, or zeros, its term of a sum that waits.
  ArrayId TileFrom(int fetch, int entry, bool is_zeros) {
    if (!is_zeros) return {fetch, 0};
    const Box tile = BoxAt(*tile_boxes_[entry], digits_);
    return Zeros(tile.Extents(), graph_.dtypes[entry], program_.steps[fetch].name,
                 program_.steps[fetch].place);
  }

  void AddHead(const HeadRequest& head) {
    const int entry = graph_.entry_id(head.entry);
    const int like = head.variable < 0 ? entry : graph_.entry_id({head.variable, 0});
    const GroupBoxes& held = *tile_boxes_[entry];
    const GroupBoxes& needs = *tile_boxes_[like];
    if (IsSame(held, needs)) {
      program_.heads.push_back({head.role, tiles_[entry], makers_[entry].step,
                                graph_.shapes[entry], graph_.dtypes[entry],
                                plan_.tensor_cuts[like]});
      return;
    }
    const std::string name = "head/" + head.role;
    const Request request{name,
                          name.size(),
                          {held, 0, Reducer::kSum, needs, WholeBox(graph_.shapes[entry])},
                          tiles_[entry],
                          makers_[entry],
                          graph_.dtypes[entry],
                          needs.volume - SumOverlap(needs, held),
                          true};
    const Box box = BoxAt(needs, digits_);
    const bool is_tile = box == BoxAt(held, digits_);
    const int fetch = AddFetch(request, box, !is_tile);
    SetKey(entry, needs, "0", fetch);
    program_.heads.push_back({head.role, is_tile ? tiles_[entry] : ArrayId{fetch, 0},
                              fetch, graph_.shapes[entry], graph_.dtypes[entry],
                              plan_.tensor_cuts[like]});
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const ProgramOptions& options_;
  const bool for_all_;  // whether to note what other workers do at a fetch
  const bool pieces_;
  const int worker_;
  const std::vector<int> digits_;
  std::vector<ArrayId> tiles_;                 // [entry]: this worker's
  std::vector<const GroupBoxes*> tile_boxes_;  // [entry]
  std::vector<ArrayId> makers_;  // [entry]: where the last worker gets its tile
  std::map<std::pair<Shape, std::vector<int>>, GroupBoxes> known_tiles_;
  std::map<std::vector<int64_t>, int> region_numbers_;
  std::map<std::vector<int64_t>, std::vector<SenderPattern>> patterns_;
  // By node, dtype and extents.
  std::map<std::tuple<int, int, Shape>, ArrayId> constants_;
  WorkerProgram program_;
};

// The names of fetches that are replaced, each with that of the fetch which is kept. All
// workers have steps of the same names, though each has constants of its own.
using Replaced = std::map<std::string, std::string>;

Replaced SharedRegions(const StrategyTable& table, const WorkerProgram& first,
                       int64_t spare_bytes) {
  std::vector<bool> in_place;
  for (const ProgramStep& step : first.steps) {
    const StrategyRow* row = step.kind == Kind::kRun ? table.row(step.node) : nullptr;
    in_place.push_back(row != nullptr && row->elementwise);
  }
  const std::vector<int> shared = ShareRegions(first, in_place, spare_bytes);
  Replaced replaced;
  for (size_t step = 0; step < shared.size(); ++step) {
    if (shared[step] < 0) continue;
    replaced.emplace(first.steps[step].name, first.steps[shared[step]].name);
  }
  return replaced;
}

void Replace(const Replaced& replaced, WorkerProgram* program) {
  std::map<std::string, int> fetches;
  for (size_t step = 0; step < program->steps.size(); ++step) {
    if (program->steps[step].kind == Kind::kFetch) {
      fetches.emplace(program->steps[step].name, static_cast<int>(step));
    }
  }
  std::vector<int> numbers(program->steps.size(), -1);
  for (const auto& [later, earlier] : replaced) {
    numbers[fetches.at(later)] = fetches.at(earlier);
  }
  RemoveSteps(numbers, program);
}

}  // namespace

WorkerProgram MakeWorkerProgram(const Graph& graph, const StrategyTable& table,
                                const Plan& plan, int worker,
                                const ProgramOptions& options) {
  WorkerProgram program =
      Builder(graph, table, plan, worker, options, true, options.pieces).Run();
  if (!options.share) return program;
  if (worker == 0) {
    Replace(SharedRegions(table, program, options.spare_bytes), &program);
  } else {
    const WorkerProgram first =
        Builder(graph, table, plan, 0, options, true, false).Run();
    Replace(SharedRegions(table, first, options.spare_bytes), &program);
  }
  return program;
}

FetchSpec PiecesOf(const ProgramStep& fetch) {
  try {
    FetchSpec spec = PlanStage(*fetch.stage, fetch.spec.worker, fetch.spec.region);
    spec.fill = fetch.spec.fill;
    return spec;
  } catch (const FetchGap& gap) {
    throw UserError(Blame::kTable,
                    fetch.name + ": no part produces all of " + BoxText(gap.box()) +
                        " for worker " + std::to_string(fetch.spec.worker) +
                        ", expected the operator's parts to cover its output; correct "
                        "its description");
  }
}

std::vector<WorkerProgram> MakeWorkerPrograms(const Graph& graph,
                                              const StrategyTable& table,
                                              const Plan& plan,
                                              const ProgramOptions& options) {
  std::vector<WorkerProgram> programs;
  for (int worker = 0; worker < plan.workers(); ++worker) {
    programs.push_back(
        Builder(graph, table, plan, worker, options, worker == 0, options.pieces).Run());
  }
  if (!options.share) return programs;
  const Replaced replaced = SharedRegions(table, programs[0], options.spare_bytes);
  for (WorkerProgram& program : programs) Replace(replaced, &program);
  return programs;
}

}  // namespace tofu
