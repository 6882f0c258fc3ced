// Caches results that the searches of one plan share: the alternatives of tensors and
// operators, and the cost model's costs of an operator's slots for each pair of them. If
// the model counts operators, each alternative of an operator also has a cost of its own.
//
// Alternatives are cuts, or patterns of which only the first steps are ordered
// (patterns.h). The cost of a pattern is a bound: the least possible with tiles and
// regions of its sizes that lie where the ordered steps put them. So patterns cost no
// more than any of their cuts, and no less than patterns that order fewer steps. Tables
// of profiles may have the cuts of some profiles in their place: a cost is exact if
// operator and tensor are both cuts, and a bound if one is a profile.
//
// Equal blocks of a network share everything, because results depend only on a
// tensor's shape and given cuts, and on an operator's signature (timesteps.h), given
// cuts and the alternatives of its tensors.
//
// Invariants: results stay valid, at their addresses, as long as the tables do.
// Errors:     none: given cuts must be possible (TOFU_CHECK).
// Complexity: O(rank + steps) for a cached result; else one cost (cost.h) per pair
//             of alternatives.
#ifndef TOFU_PASSES_SEARCH_RECURSION_SEARCH_TABLES_H_
#define TOFU_PASSES_SEARCH_RECURSION_SEARCH_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost.h"
#include "passes/search/cost/cost_model.h"
#include "passes/search/tilings/alternatives.h"
#include "solver/problem/cost_table.h"

namespace tofu {

// The ways to cut a tensor.
struct TensorChoices {
  int id = 0;
  std::vector<Cuts> alternatives;
  size_t num_patterns = 0;  // cuts follow them
  // If cuts replace some profiles: the choices of all profiles, and the position of each
  // pattern among them.
  const TensorChoices* profiles = nullptr;
  std::vector<size_t> of_profiles;  // [pattern]
  // [alternative]: the tiles after the ordered steps; those of cuts after all steps.
  std::vector<GroupBoxes> tiles;
  // [alternative] of patterns, after all steps: the tiles, and their total size.
  std::vector<TileGrid> grids;
  std::vector<int64_t> volumes;
  std::vector<GroupTiles> by_step;  // [alternative]: CutTensor's; empty for patterns
};

// The ways to split an operator of which each may be best for some cuts of its tensors.
struct OperatorChoices {
  std::vector<Cuts> alternatives;
  // For each different tensor class, in the order of the slots. Element-wise operators
  // begin with the class that they follow, and share its alternatives.
  std::vector<int> slots;  // the first slot with this class
  // [alternative * tensor's alternatives + tensor's alternative]: the slots' cost for all
  // nodes of the class.
  std::vector<SharedCells> matrices;
  // [alternative]: the operators' own cost for all nodes of the class; empty: none.
  std::vector<int64_t> own;
};

class SearchTables {
 public:
  // Restricts the alternatives of a class. `profiles`: only cuts with one of them; empty:
  // any. `exact`, if no step is ordered: replaces these profiles, and all that have one
  // order, by their cuts; null: replaces none. It must outlive the tables.
  struct Given {
    Cuts cuts;
    std::vector<Cuts> profiles;
    const std::vector<Cuts>* exact = nullptr;

    Given() = default;
    Given(Cuts decided, std::vector<Cuts> allowed, const std::vector<Cuts>* replaced)
        : cuts(decided), profiles(std::move(allowed)), exact(replaced) {}
    Given(Cuts decided) : cuts(decided) {}  // NOLINT: most give cuts alone
    Given AllProfiles() const { return {cuts, profiles, nullptr}; }
    friend bool operator==(const Given& a, const Given& b) {
      return a.cuts == b.cuts && a.profiles == b.profiles && a.exact == b.exact;
    }
  };

  // `parts` of all steps; given cuts may cover only the first steps if all are ordered.
  SearchTables(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
               std::vector<int> parts, Restrictions restrictions, const CostModel& model,
               size_t ordered = Cuts::kMaxSteps);

  // Whether an element-wise class costs anything.
  bool HasCosts(int op_class) const;

  // Returns null if there are more than `limit` alternatives.
  const TensorChoices* Tensor(int tensor_class, const Given& given, size_t limit);

  // Returns null if there are more than `limit` alternatives.
  const OperatorChoices* Operator(int op_class, const Given& given,
                                  const std::vector<const TensorChoices*>& tensors,
                                  size_t limit);

  // Cells that Operator() would have to fill for all operators; counts only until
  // `enough` is reached.
  int64_t CellsToFill(const std::vector<Given>& given,
                      const std::vector<const TensorChoices*>& tensors, size_t limit,
                      int64_t enough);

 private:
  using Key = std::vector<int>;
  // A kind of tensors or operators, and its given cuts.
  struct KindCuts {
    int kind = 0;
    Given given;
    friend bool operator==(const KindCuts& a, const KindCuts& b) {
      return a.kind == b.kind && a.given == b.given;
    }
  };
  struct Hash {
    size_t operator()(const Key& key) const;
    size_t operator()(const KindCuts& key) const;
  };
  // All ways to split an operator, before any is ruled out.
  struct Splits {
    int id = 0;
    std::vector<Cuts> alternatives;
    size_t num_patterns = 0;           // cuts follow them
    const Splits* profiles = nullptr;  // as in TensorChoices
    std::vector<size_t> of_profiles;   // [pattern]
    // [alternative], made when needed: the regions after all steps, and, if some steps
    // are ordered but not all, those after the ordered steps.
    std::vector<std::shared_ptr<const OperatorRegions>> regions;
    std::vector<OperatorRegions> first;
    std::vector<TimedSplit> by_step;  // [alternative] (CutOperator)
  };
  using Matrix = std::vector<int64_t>;

  bool MayBeWhole(int tensor_class) const;
  Cuts Ordered(Cuts cuts) const;
  bool AreAllOrdered() const { return ordered_ >= parts_.size(); }
  bool AreSomeOrdered() const { return ordered_ > 0 && !AreAllOrdered(); }
  std::vector<Cuts> TensorCuts(int tensor_class, const Given& given, size_t limit,
                               size_t* num_patterns, bool* complete) const;
  std::vector<Cuts> OperatorCuts(int op_class, const Given& given, size_t limit,
                                 size_t* num_patterns, bool* complete) const;
  Splits* SplitsOf(int op_class, const Given& given, size_t limit);
  void MakeRegions(int node, Splits* splits) const;
  void SetSlotKey(const OpSlot& slot, const Splits& splits, const TensorChoices& tensor);
  // The matrix of both profiles, if it has been filled; else null. Changes the key.
  const Matrix* ProfileMatrix(const OpSlot& slot, const Splits& splits,
                              const TensorChoices& tensor);
  const Matrix& SlotMatrix(int op_class, const OpSlot& slot, Splits* splits,
                           const TensorChoices& tensor);
  void AddSlotCosts(int node, const OpSlot& slot, const Splits& splits, size_t split,
                    const TensorChoices& tensor, const Matrix* known,
                    Matrix* matrix) const;
  int64_t LeastBytes(int node, const OpSlot& slot, const Splits& splits, size_t split,
                     const TensorChoices& tensor, size_t c, TileOverlap* overlap) const;
  OperatorChoices MakeChoices(int op_class, Splits* splits,
                              const std::vector<const TensorChoices*>& tensors);
  OperatorChoices MakeElementwise(int op_class,
                                  const std::vector<const TensorChoices*>& tensors);
  Splits* SplitsLike(int op_class, const TensorChoices& tensor);
  void AddOtherTensors(int op_class, const std::vector<const TensorChoices*>& tensors,
                       OperatorChoices* choices);

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<int> parts_;
  const Restrictions restrictions_;
  const CostModel& model_;
  const size_t ordered_;
  // Numbers that are equal if choices and costs are: of tensor classes by their shape, of
  // operator classes by their signature, and by their number of nodes and their slots.
  std::vector<int> tensor_kinds_;
  std::vector<int> split_kinds_;
  std::vector<int> slot_kinds_;
  std::unordered_map<KindCuts, TensorChoices, Hash> tensors_;
  std::unordered_map<KindCuts, Splits, Hash> splits_;
  std::map<std::pair<int, int>, Splits> following_;  // by signature and tensor followed
  std::unordered_map<Key, Matrix, Hash> matrices_;
  std::unordered_map<Key, OperatorChoices, Hash> operators_;
  Key key_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_SEARCH_TABLES_H_
