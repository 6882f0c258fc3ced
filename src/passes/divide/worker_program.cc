#include "passes/divide/worker_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "graph/memory_order.h"
#include "graph/repeats.h"
#include "passes/divide/overlapping_workers.h"
#include "passes/divide/plan_stage.h"
#include "passes/divide/share_regions.h"
#include "passes/partition/constants.h"
#include "passes/partition/head_requests.h"
#include "passes/partition/operator_parts.h"

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

// A text that is equal for equal boxes.
std::string TextOf(const GroupBoxes& boxes) {
  std::string text = std::to_string(boxes.first_only);
  for (const Intervals& dim : boxes.dims) {
    text += ';' + std::to_string(dim.steps);
    for (int64_t begin : dim.begin) text += ',' + std::to_string(begin);
    for (int64_t end : dim.end) text += ',' + std::to_string(end);
  }
  return text;
}

// A fetch as all workers know it.
struct Request {
  std::string name;
  Stage stage;
  ArrayId held;    // this worker's, of the boxes that are held
  ArrayId source;  // the same array on the workers that make it last
  Shape shape;     // of the whole tensor
  int dtype = 0;
  int64_t elements = 0;  // fetched by all workers
};

class Builder {
 public:
  Builder(const Graph& graph, const StrategyTable& table, const Plan& plan, int worker)
      : graph_(graph),
        table_(table),
        plan_(plan),
        worker_(worker),
        digits_(WorkerDigits(worker, plan.parts)),
        tiles_(graph.num_entries()),
        tile_boxes_(graph.num_entries()),
        makers_(graph.num_entries()) {
    program_.worker = worker;
  }

  WorkerProgram Run() {
    const std::vector<HeadRequest> heads = RequestHeads(graph_, std::nullopt);
    const Needed needed = NeededBy(graph_, heads);
    for (int node : MemoryOrder(graph_)) {
      CheckInterrupt();
      if (graph_.nodes[node].is_variable()) {
        AddVariable(node);
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

  void AddVariable(int node) {
    const int entry = graph_.entry_id({node, 0});
    tile_boxes_[entry] = TilesOf(entry);
    ProgramStep step;
    step.kind = Kind::kVariable;
    step.name = graph_.nodes[node].name;
    step.node = node;
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
    const GroupBoxes& needs = regions.Boxes(false, slot);
    const GroupBoxes& tiles = *tile_boxes_[entry];
    const std::string name = graph_.nodes[node].name + "/in" + std::to_string(slot);
    const bool is_padded = IsPadded(node, slot);
    if (!is_padded && IsSame(needs, tiles)) {
      reader->inputs.push_back(tiles_[entry]);
      reader->after.push_back(makers_[entry].step);
      return;
    }
    if (!is_padded && region.box.Volume() > 0 && !region.zeros &&
        IsConstantAlong(graph_, table_, input, DividedDims(needs))) {
      program_.shared_bytes +=
          regions.InputElements(slot, tiles) * DtypeBytes(graph_.dtypes[entry]);
      reader->inputs.push_back(Constant(input, region.box, name));
      return;
    }
    const Request request{name,
                          {tiles, 0, Reducer::kSum, needs},
                          tiles_[entry],
                          makers_[entry],
                          graph_.shapes[entry],
                          graph_.dtypes[entry],
                          regions.InputElements(slot, tiles)};
    const bool is_tile = !region.zeros && BoxAt(tiles, digits_) == region.box;
    const bool fetches = reader->takes_part && !region.zeros && !is_tile;
    const int fetch = AddFetch(request, region.box, fetches, region.fill);
    // Few operators read the same padded region.
    if (!is_padded) SetKey(entry, needs, region.fill, fetch);
    reader->after.push_back(fetch);
    if (region.zeros) {
      reader->inputs.push_back(Zeros(region.box.Extents(), graph_.dtypes[entry], name));
    } else {
      reader->inputs.push_back(is_tile ? tiles_[entry] : ArrayId{fetch, 0});
    }
  }

  // Notes which regions of an entry's tiles a fetch assembles.
  void SetKey(int entry, const GroupBoxes& needs, const std::string& fill, int fetch) {
    const int next = static_cast<int>(region_numbers_.size());
    const auto [found, is_new] = region_numbers_.try_emplace(TextOf(needs), next);
    program_.steps[fetch].key = {entry, found->second, fill};
  }

  int AddFetch(const Request& request, const Box& region, bool takes_part,
               const std::string& fill = "0") {
    ProgramStep step;
    step.kind = Kind::kFetch;
    step.name = request.name;
    step.takes_part = takes_part;
    step.shapes = {region.Extents()};
    step.dtypes = {request.dtype};
    step.after = {request.source.step};
    step.held = request.held;
    step.source = request.source;
    step.received_bytes = request.elements * DtypeBytes(request.dtype);
    if (takes_part) {
      step.spec = PlanStage(request.stage, worker_, region, WholeBox(request.shape));
      step.spec.fill = fill;
      const bool reads_own =
          std::any_of(step.spec.pieces.begin(), step.spec.pieces.end(),
                      [&](const FetchPiece& piece) { return piece.source == worker_; });
      if (reads_own) step.inputs = {request.held};
    }
    if (step.received_bytes > 0) {
      step.sent = PlanSent(request.stage, worker_);
      step.pattern = PatternOf(request.stage);
    }
    return Add(std::move(step));
  }

  ArrayId Zeros(const Shape& shape, int dtype, const std::string& name) {
    ProgramStep step;
    step.kind = Kind::kConstant;
    step.name = name + "/zeros";
    step.shapes = {shape};
    step.dtypes = {dtype};
    return {Add(std::move(step)), 0};
  }

  ArrayId Constant(NodeEntry output, const Box& region, const std::string& name) {
    ProgramStep step;
    step.kind = Kind::kConstant;
    step.name = name + "/constant";
    step.node = output.node;
    step.attrs = WithoutTofuAttrs(graph_.nodes[output.node].attrs);
    step.attrs[table_.row(output.node)->attrs[0].name] = TupleText(region.Extents());
    step.shapes = {region.Extents()};
    step.dtypes = {graph_.dtype(output)};
    return {Add(std::move(step)), 0};
  }

  // Brings an output of an operator from the regions that its parts produced to its
  // tiles; `made` is this worker's part of it.
  void AddOutput(ArrayId made, const OperatorPart& part, const OperatorRegions& regions) {
    const int node = program_.steps[made.step].node;
    const int index = made.output;
    const int entry = graph_.entry_id({node, index});
    const GroupBoxes& tiles = *(tile_boxes_[entry] = TilesOf(entry));
    const GroupBoxes& produced = regions.Boxes(true, index);
    const OutputReduction reduction = ReductionOf(graph_, table_, plan_, node, index);
    const StepSet reduces = regions.Reduces(index);
    tiles_[entry] = made;
    makers_[entry] = made;
    if (reduces == 0 && IsSame(produced, tiles)) return;
    const std::string name = graph_.nodes[node].name + "/out" + std::to_string(index);
    const ArrayId held = part.active ? made : ArrayId{};
    const OutputWay way = regions.CheapestWay(index, tiles);
    const Box tile = BoxAt(tiles, digits_);
    Request request{name,
                    {produced, reduces, reduction.reduce, tiles},
                    held,
                    made,
                    graph_.shapes[entry],
                    graph_.dtypes[entry],
                    way.elements};
    try {
      if (way.splits.empty()) {
        const bool is_tile = reduces == 0 && part.active && part.outputs[index] == tile;
        const int fetch = AddFetch(request, tile, !is_tile);
        makers_[entry] = {fetch, 0};
        if (!is_tile) tiles_[entry] = {fetch, 0};
        return;
      }
      const GroupBoxes pieces = Pieces(tiles, way.splits);
      const int64_t gathered = tiles.volume - pieces.volume;
      Request first{name + "/piece",
                    {produced, reduces, reduction.reduce, pieces},
                    held,
                    made,
                    request.shape,
                    request.dtype,
                    way.elements - gathered};
      const int piece = AddFetch(first, BoxAt(pieces, digits_), true);
      Request second{name,          {pieces, 0, Reducer::kSum, tiles},
                     {piece, 0},    {piece, 0},
                     request.shape, request.dtype,
                     gathered};
      tiles_[entry] = {AddFetch(second, tile, true), 0};
      makers_[entry] = tiles_[entry];
    } catch (const FetchGap& gap) {
      throw UserError(Blame::kTable,
                      "node " + graph_.nodes[node].name + " (" +
                          graph_.nodes[node].op.text() + "), output " +
                          std::to_string(index) + ": no part produces all of " +
                          BoxText(gap.box()) + " for worker " + std::to_string(worker_) +
                          ", expected the parts to cover the output; correct the "
                          "operator's description");
    }
  }

  void AddHead(const HeadRequest& head) {
    const int entry = graph_.entry_id(head.entry);
    const int like = head.variable < 0 ? entry : graph_.entry_id({head.variable, 0});
    const GroupBoxes& held = *tile_boxes_[entry];
    const GroupBoxes& needs = *tile_boxes_[like];
    if (IsSame(held, needs)) {
      program_.heads.push_back({head.role, tiles_[entry], makers_[entry].step,
                                graph_.shapes[entry], plan_.tensor_cuts[like]});
      return;
    }
    const Request request{"head/" + head.role,
                          {held, 0, Reducer::kSum, needs},
                          tiles_[entry],
                          makers_[entry],
                          graph_.shapes[entry],
                          graph_.dtypes[entry],
                          needs.volume - SumOverlap(needs, held)};
    const Box box = BoxAt(needs, digits_);
    const bool is_tile = box == BoxAt(held, digits_);
    const int fetch = AddFetch(request, box, !is_tile);
    SetKey(entry, needs, "0", fetch);
    program_.heads.push_back({head.role, is_tile ? tiles_[entry] : ArrayId{fetch, 0},
                              fetch, graph_.shapes[entry], plan_.tensor_cuts[like]});
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const Plan& plan_;
  const int worker_;
  const std::vector<int> digits_;
  std::vector<ArrayId> tiles_;                 // [entry]: this worker's
  std::vector<const GroupBoxes*> tile_boxes_;  // [entry]
  std::vector<ArrayId> makers_;  // [entry]: where the last worker gets its tile
  std::map<std::pair<Shape, std::vector<int>>, GroupBoxes> known_tiles_;
  std::map<std::string, int> region_numbers_;
  WorkerProgram program_;
};

}  // namespace

WorkerProgram MakeWorkerProgram(const Graph& graph, const StrategyTable& table,
                                const Plan& plan, int worker, int64_t spare_bytes) {
  WorkerProgram program = Builder(graph, table, plan, worker).Run();
  const WorkerProgram first =
      worker == 0 ? program : Builder(graph, table, plan, 0).Run();
  std::vector<bool> in_place;
  for (const ProgramStep& step : first.steps) {
    const StrategyRow* row = step.kind == Kind::kRun ? table.row(step.node) : nullptr;
    in_place.push_back(row != nullptr && row->elementwise);
  }
  // Constants are the worker's own, so steps are matched by their names.
  const std::vector<int> shared = ShareRegions(first, in_place, spare_bytes);
  std::map<std::string, std::string> replaced;
  for (size_t step = 0; step < shared.size(); ++step) {
    if (shared[step] < 0) continue;
    replaced.emplace(first.steps[step].name, first.steps[shared[step]].name);
  }
  std::map<std::string, int> fetches;
  for (size_t step = 0; step < program.steps.size(); ++step) {
    if (program.steps[step].kind == Kind::kFetch) {
      fetches.emplace(program.steps[step].name, static_cast<int>(step));
    }
  }
  std::vector<int> numbers(program.steps.size(), -1);
  for (const auto& [later, earlier] : replaced) {
    numbers[fetches.at(later)] = fetches.at(earlier);
  }
  RemoveSteps(numbers, &program);
  return program;
}

}  // namespace tofu
