// Chooses how the undecided steps cut every tensor class and split every operator
// class, to minimise what the workers communicate in total (paper section 5: the
// optimization goal and the dynamic program).
//
// One search decides one step given the others (the paper's recursion), or
// several at once. With c_v an alternative of tensor class v and s_p one of
// operator class p, it minimises
//   sum over p of multiplicity_p * min over s_p of
//     sum over p's slots of cost(slot, s_p, c_class(slot)),
// by elimination over variables c and s, so that an operator with many tensors needs no
// table over all of them. The costs are a cost model's; some models add a cost of s_p
// alone.
//
// Input:      a graph, its table and classes; the steps already decided.
// Output:     the cuts of every class, their cost after all steps, a lower bound
//             on it and a status.
// Invariants: a tensor, or an operator, stays whole at a step only if the step can
//             divide none of its dimensions, or if `given` or the restrictions say
//             so. A whole operator often communicates as much as a split one, but
//             all workers of the step would compute the same, in whole-size memory.
// Errors:     none: given cuts must be possible (TOFU_CHECK).
// Position:   after coalesce; recursive_search.h calls it at least once per step.
// Deadline:   after it, undecided classes take their first alternative that
//             divides: a valid plan with a weak bound.
// Complexity: tables: one matrix for each different (operator, shapes, given
//             cuts), |s| * |c| costs of cost.h; then eliminate.h's.
#ifndef TOFU_PASSES_SEARCH_RECURSION_STEP_SEARCH_H_
#define TOFU_PASSES_SEARCH_RECURSION_STEP_SEARCH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "graph/cuts.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"
#include "passes/coarsen/coalesce.h"
#include "passes/search/cost/cost_model.h"
#include "passes/search/recursion/search_tables.h"
#include "passes/search/tilings/class_cuts.h"
#include "passes/search/tilings/memory_limit.h"
#include "solver/elimination/eliminate.h"
#include "solver/solve.h"
#include "solver/solve_cache.h"

namespace tofu {

// The profiles (patterns.h) that each class may have; empty: all.
struct ClassProfiles {
  std::vector<std::vector<Cuts>> tensors;    // [tensor class]
  std::vector<std::vector<Cuts>> operators;  // [operator class]
};

// The profiles that are told apart, that is, replaced by their cuts; null: none.
struct ExactProfiles {
  std::vector<const std::vector<Cuts>*> tensors;    // [tensor class]
  std::vector<const std::vector<Cuts>*> operators;  // [operator class]
};

// The profiles that are told apart, by shape and signature, so that they also serve other
// classes of the same graph, over the same parts.
struct KnownProfiles {
  std::vector<int> parts;
  std::map<Shape, std::vector<Cuts>> tensors;
  std::map<int, std::vector<Cuts>> operators;  // by signature (timesteps.h)
};

constexpr int64_t kUnlimitedCells = int64_t{1} << 62;

enum class SolveBy {
  kElimination,
  kGreedy,  // the largest tensor first (greedy.h)
  kBranch   // reductions, bounds and branch and bound (solve.h)
};

struct SearchOptions {
  SolveBy method = SolveBy::kElimination;
  EliminateOptions eliminate;
  int64_t max_nodes = 1;                // of kBranch
  int64_t top = kForbidden;             // looks for lower costs only; of kBranch
  const MemoryLimit* memory = nullptr;  // null: no limit; only of kBranch
  double elimination_work = SolveOptions().elimination_work;            // of kBranch
  double late_elimination_work = SolveOptions().late_elimination_work;  // the same
  double max_work = SolveOptions().max_work;                            // the same
  // Number of steps whose order is decided. If later steps exist, the search chooses
  // patterns, and its cost is a bound (patterns.h).
  size_t ordered = Cuts::kMaxSteps;
  const ClassProfiles* profiles = nullptr;  // null: all
  const ExactProfiles* exact = nullptr;     // null: none; only if no step is ordered
  // A search with more alternatives of one class, or more matrix cells to fill, ends with
  // kTooBig.
  size_t max_alternatives = 1 << 12;
  int64_t max_cells = kUnlimitedCells;
  // So does one whose matrices are not filled by then.
  Deadline tables_deadline = Deadline::max();
};

struct SearchResult {
  EliminateStatus status = EliminateStatus::kTooBig;
  ClassCuts cuts;
  int64_t cost = 0;  // of all steps given and decided
  int64_t lower_bound = 0;
  int num_variables = 0;
  double work = 0;  // of kBranch (solve.h)
};

// Searches of one graph over the same steps, which share cached results.
class PartitionSearcher {
 public:
  // `parts`: those of all steps.
  PartitionSearcher(const Graph& graph, const StrategyTable& table,
                    const CoarseGraph& coarse, const std::vector<int>& parts,
                    const Restrictions& restrictions, const Objective& objective = {});

  const CostModel& model() const { return *model_; }
  const std::vector<int>& parts() const { return parts_; }

  // `given` covers the first steps, or all. If no choice costs less than options.top, the
  // lower bound is the top.
  SearchResult Search(const ClassCuts& given, const SearchOptions& options);

  // The profiles of every tensor class that a plan cheaper than `top` may have, found in
  // `rounds` rounds (wanted_values.h); operators may have any. Empty if there are more
  // alternatives than the options allow.
  ClassProfiles WantedProfiles(const ClassCuts& given, const SearchOptions& options,
                               int64_t top, int rounds);

  // Tells the chosen profiles apart, for all classes of the same shape or signature.
  // Returns false if none was new: then the choices are a plan.
  bool TellApart(const ClassCuts& chosen, ExactProfiles* exact);

  // Convert between the profiles by class and those by shape and signature, which an
  // earlier search hands on.
  ExactProfiles ExactOf(const KnownProfiles& known);
  KnownProfiles KnownOf(const ExactProfiles& exact) const;

  // The problem that Search() solves, without limits on alternatives.
  ChoiceProblem Problem(const ClassCuts& given);

 private:
  SearchTables* TablesOf(size_t ordered);
  const std::vector<Cuts>* Kept(std::vector<Cuts> profiles);
  // Gives every tensor its first alternative, and then every operator its best one.
  SearchResult Hurry(ClassCuts given, SearchOptions options);

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const std::vector<int> parts_;
  const Restrictions restrictions_;
  const std::unique_ptr<const CostModel> model_;
  std::map<size_t, SearchTables> tables_;  // by the number of ordered steps
  EliminationCache cache_;
  SolveCache solve_cache_;
  std::deque<std::vector<Cuts>> exact_sets_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_STEP_SEARCH_H_
