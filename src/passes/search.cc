#include "passes/search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/box.h"
#include "graph/error.h"
#include "passes/cost.h"
#include "passes/elementwise.h"
#include "passes/greedy.h"

namespace tofu {
namespace {

using Matrix = std::vector<int64_t>;  // [operator alternative * tensors' + tensor's]

Cuts Prefix(const Cuts& cuts, size_t steps) {
  return Cuts(cuts.begin(), cuts.begin() + static_cast<std::ptrdiff_t>(steps));
}

NodeEntry SlotEntry(const Graph& graph, int node, const OpSlot& slot) {
  return slot.is_output ? NodeEntry{node, slot.index}
                        : graph.nodes[node].inputs[slot.index];
}

// The alternatives of one tensor class with the tiles that each gives.
struct TensorChoice {
  std::vector<Cuts> alternatives;
  std::vector<GroupBoxes> tiles;
  int variable = -1;  // of the problem; -1: nothing to decide
};

struct OpChoice {
  std::vector<Cuts> alternatives;
  int variable = -1;
};

bool IsOver(Deadline deadline) {
  return deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline;
}

class Searcher {
 public:
  Searcher(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
           const ClassCuts& given, const std::vector<int>& parts,
           const SearchOptions& options)
      : graph_(graph),
        table_(table),
        coarse_(coarse),
        given_(given),
        parts_(parts),
        options_(options) {}

  SearchResult Run() {
    SearchResult result;
    if (!EnumerateTensors() || !EnumerateOperators() || !IsSmallEnough()) return result;
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      if (IsOver(options_.tables_deadline)) return result;
      AddOperator(static_cast<int>(p));
    }
    const EliminateResult solved = Solve();
    result.status = solved.status;
    result.bytes = solved.cost;
    result.lower_bound_bytes = solved.lower_bound;
    result.num_variables = static_cast<int>(problem_.domain.size());
    if (solved.status != EliminateStatus::kTooBig) result.cuts = Decode(solved.values);
    return result;
  }

 private:
  EliminateResult Solve() const {
    EliminateResult solved = Eliminate(problem_, options_.eliminate);
    if (!options_.greedy || solved.status == EliminateStatus::kTooBig) return solved;
    // What is best in this mode still bounds what the greedy choice finds.
    solved.values = DecideGreedily(problem_, LargestFirst());
    solved.cost = problem_.Cost(solved.values);
    solved.status = solved.cost == solved.lower_bound ? EliminateStatus::kOptimal
                                                      : EliminateStatus::kFeasible;
    return solved;
  }

  // Variables of tensors, by the bytes of one of them.
  std::vector<int> LargestFirst() const {
    std::vector<std::pair<int64_t, int>> order;
    for (size_t c = 0; c < tensors_.size(); ++c) {
      const TensorClass& tensor = coarse_.tensors[c];
      if (tensors_[c].variable < 0) continue;
      order.emplace_back(
          -NumElements(tensor.shape) * DtypeBytes(graph_.dtypes[tensor.entries[0]]),
          tensors_[c].variable);
    }
    std::sort(order.begin(), order.end());
    std::vector<int> variables;
    for (const auto& [bytes, variable] : order) variables.push_back(variable);
    return variables;
  }

  bool MayBeWhole(size_t tensor_class) const {
    const std::vector<bool>& whole = options_.restrictions.may_be_whole;
    return !whole.empty() && whole[tensor_class];
  }

  bool EnumerateTensors() {
    for (size_t c = 0; c < coarse_.tensors.size(); ++c) {
      bool complete = true;
      TensorChoice choice;
      choice.alternatives = TensorAlternatives(
          coarse_.tensors[c].shape, given_.tensors[c], parts_, options_.restrictions,
          MayBeWhole(c), options_.max_alternatives, &complete);
      if (!complete) return false;
      TOFU_CHECK(!choice.alternatives.empty()) << "tensor class " << c << " has no cuts";
      if (choice.alternatives.size() > 1) {
        choice.variable =
            problem_.AddVariable(static_cast<int>(choice.alternatives.size()));
      }
      tensors_.push_back(std::move(choice));
    }
    return true;
  }

  bool EnumerateOperators() {
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      bool complete = true;
      OpChoice choice;
      if (!coarse_.operators[p].elementwise) {
        choice.alternatives = OperatorAlternatives(
            graph_, table_, coarse_.operators[p].nodes[0], given_.operators[p], parts_,
            options_.restrictions, options_.max_alternatives, &complete);
        if (!complete) return false;
        TOFU_CHECK(!choice.alternatives.empty())
            << "operator class " << p << " has no way to split";
      }
      operators_.push_back(std::move(choice));
    }
    return true;
  }

  bool IsSmallEnough() const {
    int64_t cells = 0;
    int64_t groups = 1;
    for (int part : parts_) groups *= part;
    for (size_t p = 0; p < operators_.size(); ++p) {
      for (const OpSlot& slot : coarse_.operators[p].slots) {
        cells += static_cast<int64_t>(operators_[p].alternatives.size() *
                                      tensors_[slot.tensor_class].alternatives.size()) *
                 groups;
      }
    }
    return cells <= options_.max_cells;
  }

  void AddOperator(int p) {
    const OpClass& op = coarse_.operators[p];
    if (op.elementwise) {
      AddElementwise(op);
      return;
    }
    // One matrix for each tensor class, whatever the number of slots it is at.
    std::map<int, Matrix> matrices;
    for (const OpSlot& slot : op.slots) {
      const Matrix& costs = SlotMatrix(p, slot);
      Matrix& sum = matrices[slot.tensor_class];
      sum.resize(costs.size(), 0);
      for (size_t i = 0; i < costs.size(); ++i) {
        sum[i] += costs[i] * static_cast<int64_t>(op.nodes.size());
      }
    }
    KeepUndominated(&operators_[p], &matrices);
    Publish(&operators_[p], matrices);
  }

  // Split as its tensors are, it fetches nothing, unless it is random and some
  // step leaves it whole.
  void AddElementwise(const OpClass& op) {
    const int node = op.nodes[0];
    if (!table_.row(node)->random || op.slots.empty()) return;
    TensorChoice& tensor = tensors_[op.slots[0].tensor_class];
    std::vector<int64_t> costs;
    for (size_t c = 0; c < tensor.alternatives.size(); ++c) {
      const OperatorRegions regions(
          graph_, table_, node,
          ElementwiseCuts(*table_.row(node), tensor.alternatives[c]), parts_);
      int64_t bytes = 0;
      for (const OpSlot& slot : op.slots) {
        bytes += SlotBytes(regions, node, slot, Tiles(slot.tensor_class)[c]);
      }
      costs.push_back(bytes * static_cast<int64_t>(op.nodes.size()));
    }
    AddUnary(tensor.variable, costs);
  }

  int64_t SlotBytes(const OperatorRegions& regions, int node, const OpSlot& slot,
                    const GroupBoxes& tiles) const {
    const int64_t elements = slot.is_output ? regions.OutputElements(slot.index, tiles)
                                            : regions.InputElements(slot.index, tiles);
    return elements * DtypeBytes(graph_.dtype(SlotEntry(graph_, node, slot)));
  }

  const std::vector<GroupBoxes>& Tiles(int tensor_class) {
    TensorChoice& tensor = tensors_[tensor_class];
    if (tensor.tiles.empty()) {
      for (const Cuts& cuts : tensor.alternatives) {
        tensor.tiles.push_back(
            TileBoxes(coarse_.tensors[tensor_class].shape, cuts, parts_));
      }
    }
    return tensor.tiles;
  }

  // Operators of one signature under equal given cuts share their matrices.
  const Matrix& SlotMatrix(int p, const OpSlot& slot) {
    const OpClass& op = coarse_.operators[p];
    std::vector<int> key = {op.signature, slot.is_output ? 1 : 0, slot.index,
                            MayBeWhole(static_cast<size_t>(slot.tensor_class)) ? 1 : 0};
    const Cuts& of_op = given_.operators[p];
    const Cuts& of_tensor = given_.tensors[slot.tensor_class];
    key.insert(key.end(), of_op.begin(), of_op.end());
    key.insert(key.end(), of_tensor.begin(), of_tensor.end());
    Matrix& matrix = matrices_[key];
    if (!matrix.empty()) return matrix;
    const std::vector<OperatorRegions>& regions = Regions(p);
    for (const OperatorRegions& region : regions) {
      for (const GroupBoxes& tiles : Tiles(slot.tensor_class)) {
        matrix.push_back(SlotBytes(region, op.nodes[0], slot, tiles));
      }
    }
    return matrix;
  }

  const std::vector<OperatorRegions>& Regions(int p) {
    if (regions_of_ == p) return regions_;
    regions_.clear();
    for (const Cuts& cuts : operators_[p].alternatives) {
      regions_.emplace_back(graph_, table_, coarse_.operators[p].nodes[0], cuts, parts_);
    }
    regions_of_ = p;
    return regions_;
  }

  // Drops alternatives that cost no less than another one whatever the tensors'
  // cuts are; of equal ones the first stays.
  void KeepUndominated(OpChoice* choice, std::map<int, Matrix>* matrices) const {
    const size_t count = choice->alternatives.size();
    std::vector<bool> keep(count, true);
    for (size_t s = 0; s < count; ++s) {
      for (size_t t = 0; t < count && keep[s]; ++t) {
        if (t == s || !keep[t] || !Dominates(*matrices, t, s)) continue;
        keep[s] = s < t && Dominates(*matrices, s, t);
      }
    }
    std::vector<Cuts> kept;
    for (size_t s = 0; s < count; ++s) {
      if (keep[s]) kept.push_back(choice->alternatives[s]);
    }
    choice->alternatives = std::move(kept);
    for (auto& [tensor, matrix] : *matrices) {
      const size_t width = tensors_[tensor].alternatives.size();
      Matrix rows;
      for (size_t s = 0; s < count; ++s) {
        if (keep[s])
          rows.insert(rows.end(), &matrix[s * width], &matrix[s * width] + width);
      }
      matrix = std::move(rows);
    }
  }

  bool Dominates(const std::map<int, Matrix>& matrices, size_t t, size_t s) const {
    for (const auto& [tensor, matrix] : matrices) {
      const size_t width = tensors_[tensor].alternatives.size();
      for (size_t c = 0; c < width; ++c) {
        if (matrix[t * width + c] > matrix[s * width + c]) return false;
      }
    }
    return true;
  }

  void Publish(OpChoice* choice, const std::map<int, Matrix>& matrices) {
    if (choice->alternatives.size() > 1) {
      choice->variable =
          problem_.AddVariable(static_cast<int>(choice->alternatives.size()));
    }
    for (const auto& [tensor, matrix] : matrices) {
      const int other = tensors_[tensor].variable;
      if (choice->variable < 0) {
        AddUnary(other, matrix);
      } else if (other < 0) {
        AddUnary(choice->variable, matrix);
      } else {
        problem_.pairs.push_back({choice->variable, other, matrix});
      }
    }
  }

  void AddUnary(int variable, const std::vector<int64_t>& costs) {
    if (variable < 0) {
      problem_.constant += costs[0];
      return;
    }
    std::vector<int64_t>& unary = problem_.unary[variable];
    unary.resize(costs.size(), 0);
    for (size_t i = 0; i < costs.size(); ++i) unary[i] += costs[i];
  }

  ClassCuts Decode(const std::vector<int>& values) const {
    ClassCuts cuts;
    for (const TensorChoice& choice : tensors_) {
      const int value = choice.variable < 0 ? 0 : values[choice.variable];
      cuts.tensors.push_back(choice.alternatives[value]);
    }
    for (size_t p = 0; p < operators_.size(); ++p) {
      const OpChoice& choice = operators_[p];
      if (coarse_.operators[p].elementwise) {
        cuts.operators.push_back(given_.operators[p]);
        continue;
      }
      const int value = choice.variable < 0 ? 0 : values[choice.variable];
      cuts.operators.push_back(choice.alternatives[value]);
    }
    return cuts;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const ClassCuts& given_;
  const std::vector<int>& parts_;
  const SearchOptions& options_;
  std::vector<TensorChoice> tensors_;
  std::vector<OpChoice> operators_;
  std::map<std::vector<int>, Matrix> matrices_;
  std::vector<OperatorRegions> regions_;  // of operator class regions_of_
  int regions_of_ = -1;
  PairwiseProblem problem_;
};

}  // namespace

SearchResult SearchPartition(const Graph& graph, const StrategyTable& table,
                             const CoarseGraph& coarse, const ClassCuts& given,
                             const std::vector<int>& parts,
                             const SearchOptions& options) {
  return Searcher(graph, table, coarse, given, parts, options).Run();
}

Cuts ElementwiseCuts(const StrategyRow& row, const Cuts& tensor_cuts) {
  const std::vector<int> vars = DimensionVars(row);
  Cuts cuts;
  for (int cut : tensor_cuts)
    cuts.push_back(cut == kReplicated ? kReplicated : vars[cut]);
  return cuts;
}

int64_t ClassBytes(const Graph& graph, const StrategyTable& table,
                   const CoarseGraph& coarse, const ClassCuts& cuts, int op, size_t steps,
                   const std::vector<int>& parts) {
  const OpClass& operators = coarse.operators[op];
  if (operators.slots.empty()) return 0;
  const int node = operators.nodes[0];
  const StrategyRow* row = table.row(node);
  if (operators.elementwise && !row->random) return 0;
  const Cuts of_op =
      operators.elementwise
          ? ElementwiseCuts(*row, cuts.tensors[operators.slots[0].tensor_class])
          : cuts.operators[op];
  const OperatorRegions regions(graph, table, node, Prefix(of_op, steps), parts);
  int64_t bytes = 0;
  for (const OpSlot& slot : operators.slots) {
    const NodeEntry entry = SlotEntry(graph, node, slot);
    const GroupBoxes tiles = TileBoxes(
        graph.shape(entry), Prefix(cuts.tensors[slot.tensor_class], steps), parts);
    const int64_t elements = slot.is_output ? regions.OutputElements(slot.index, tiles)
                                            : regions.InputElements(slot.index, tiles);
    bytes += elements * DtypeBytes(graph.dtype(entry));
  }
  return bytes;
}

}  // namespace tofu
