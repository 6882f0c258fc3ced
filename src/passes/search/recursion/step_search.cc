#include "passes/search/recursion/step_search.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "passes/search/cost/cost.h"
#include "passes/search/tilings/patterns.h"
#include "solver/elimination/greedy.h"
#include "solver/problem/moments.h"
#include "solver/solve.h"
#include "solver/wanted_values.h"

namespace tofu {
namespace {

constexpr size_t kClassesPerLook = 64;  // classes between two checks of the clock

// The problem of one search: builds it from the tables, and reads its solution.
class SearchProblem {
 public:
  SearchProblem(const CoarseGraph& coarse, const ClassCuts& given,
                const SearchOptions& options, SearchTables* tables)
      : coarse_(coarse), given_(given), options_(options), tables_(tables) {}

  // Returns false if the problem is too big, or time is up.
  bool Make() {
    for (size_t c = 0; c < coarse_.tensors.size(); ++c) {
      const TensorChoices* choices =
          tables_->Tensor(static_cast<int>(c), OfTensor(c), options_.max_alternatives);
      if (choices == nullptr) return false;
      tensors_.push_back(choices);
      tensor_variables_.push_back(AddVariable(choices->alternatives.size()));
    }
    if (options_.max_cells < kUnlimitedCells && CellsToFill() >= options_.max_cells) {
      return false;
    }
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      if (p % kClassesPerLook == 0 && IsPast(options_.eliminate.deadline)) {
        is_late_ = true;
        return false;
      }
      if (IsPast(options_.tables_deadline)) return false;
      if (!AddOperator(static_cast<int>(p))) return false;
    }
    return true;
  }

  const ChoiceProblem& problem() const { return problem_; }
  // The variables of tensor classes, those of the largest tensors first.
  std::vector<int> LargestFirst(const Graph& graph) const {
    std::vector<std::pair<int64_t, int>> order;
    for (size_t c = 0; c < tensors_.size(); ++c) {
      const TensorClass& tensor = coarse_.tensors[c];
      if (tensor_variables_[c] < 0) continue;
      order.emplace_back(
          -NumElements(tensor.shape) * DtypeBytes(graph.dtypes[tensor.entries[0]]),
          tensor_variables_[c]);
    }
    std::sort(order.begin(), order.end());
    std::vector<int> variables;
    for (const auto& [bytes, variable] : order) variables.push_back(variable);
    return variables;
  }

  // The problem with a limit on the bytes of a worker's tiles.
  ChoiceProblem Limited(const MemoryLimit& memory, const std::vector<int>& parts) const {
    MemoryProfile profile(problem_.domain);
    for (const MemoryLimit::Life& life : memory.lives) {
      std::vector<int64_t> bytes;
      for (const Cuts& cuts : tensors_[life.tensor_class]->alternatives) {
        bytes.push_back(TileBytes(life, cuts, parts));
      }
      profile.Add(tensor_variables_[life.tensor_class], life.begin, life.end, bytes);
    }
    ChoiceProblem limited = problem_;
    profile.Write(memory.limit_bytes, &limited);
    return limited;
  }

  // Whether time was up before the problem was made.
  bool is_late() const { return is_late_; }

  // The alternatives of tensors whose value is in `wanted`.
  ClassProfiles Profiles(const ValueMask& wanted) const {
    ClassProfiles profiles;
    profiles.operators.resize(coarse_.operators.size());
    for (size_t c = 0; c < tensors_.size(); ++c) {
      const std::vector<Cuts>& all = tensors_[c]->alternatives;
      std::vector<Cuts>& some = profiles.tensors.emplace_back();
      for (size_t i = 0; i < all.size(); ++i) {
        if (tensor_variables_[c] < 0 || wanted[tensor_variables_[c]][i]) {
          some.push_back(all[i]);
        }
      }
    }
    return profiles;
  }

  ClassCuts Decode(const std::vector<int>& values) const {
    ClassCuts cuts;
    for (size_t c = 0; c < tensors_.size(); ++c) {
      const int variable = tensor_variables_[c];
      cuts.tensors.push_back(
          tensors_[c]->alternatives[variable < 0 ? 0 : values[variable]]);
    }
    for (size_t p = 0; p < operators_.size(); ++p) {
      const int variable = operator_variables_[p];
      cuts.operators.push_back(
          operators_[p] == nullptr
              ? given_.operators[p]
              : operators_[p]->alternatives[variable < 0 ? 0 : values[variable]]);
    }
    return cuts;
  }

 private:
  SearchTables::Given OfTensor(size_t c) const {
    SearchTables::Given given(given_.tensors[c]);
    if (options_.profiles != nullptr) given.profiles = options_.profiles->tensors[c];
    if (options_.exact != nullptr) given.exact = options_.exact->tensors[c];
    return given;
  }

  SearchTables::Given OfOperator(size_t p) const {
    SearchTables::Given given(given_.operators[p]);
    if (options_.profiles != nullptr) given.profiles = options_.profiles->operators[p];
    if (options_.exact != nullptr) given.exact = options_.exact->operators[p];
    return given;
  }

  int64_t CellsToFill() {
    std::vector<SearchTables::Given> given;
    for (size_t p = 0; p < given_.operators.size(); ++p) given.push_back(OfOperator(p));
    return tables_->CellsToFill(given, tensors_, options_.max_alternatives,
                                options_.max_cells);
  }

  int AddVariable(size_t alternatives) {
    return alternatives > 1 ? problem_.AddVariable(static_cast<int>(alternatives)) : -1;
  }

  bool AddOperator(int p) {
    const OpClass& op = coarse_.operators[p];
    operators_.push_back(nullptr);
    operator_variables_.push_back(-1);
    if (op.elementwise && !tables_->HasCosts(p)) return true;
    const OperatorChoices* choices =
        tables_->Operator(p, OfOperator(p), tensors_, options_.max_alternatives);
    if (choices == nullptr) return false;
    const int variable = AddVariable(choices->alternatives.size());
    AddOwn(variable, choices->own);
    const int decides = op.elementwise ? tensor_variables_[op.follows] : variable;
    if (op.elementwise) AddCosts(-1, decides, choices->matrices[0]);
    for (size_t i = op.elementwise ? 1 : 0; i < choices->slots.size(); ++i) {
      const OpSlot& slot = op.slots[choices->slots[i]];
      AddCosts(decides, tensor_variables_[slot.tensor_class], choices->matrices[i]);
    }
    if (op.elementwise) return true;
    operators_.back() = choices;
    operator_variables_.back() = variable;
    return true;
  }

  void AddCosts(int of_operator, int of_tensor, const SharedCells& matrix) {
    if (of_operator >= 0 && of_tensor >= 0) {
      problem_.pairs.push_back({of_operator, of_tensor, matrix});
    } else if (of_operator >= 0 || of_tensor >= 0) {
      AddUnary(of_operator >= 0 ? of_operator : of_tensor, matrix.vector());
    } else {
      problem_.constant += matrix[0];
    }
  }

  void AddOwn(int variable, const std::vector<int64_t>& costs) {
    if (costs.empty()) return;
    if (variable >= 0) {
      AddUnary(variable, costs);
    } else {
      problem_.constant += costs[0];
    }
  }

  void AddUnary(int variable, const std::vector<int64_t>& costs) {
    std::vector<int64_t>& unary = problem_.unary[variable];
    unary.resize(costs.size(), 0);
    for (size_t i = 0; i < costs.size(); ++i) unary[i] += costs[i];
  }

  const CoarseGraph& coarse_;
  const ClassCuts& given_;
  const SearchOptions& options_;
  SearchTables* const tables_;
  std::vector<const TensorChoices*> tensors_;      // [tensor class]
  std::vector<const OperatorChoices*> operators_;  // [operator class]; null: element-wise
  std::vector<int> tensor_variables_;              // of the problem; -1: none
  std::vector<int> operator_variables_;
  ChoiceProblem problem_;
  bool is_late_ = false;
};

// The profiles that the classes of one kind tell apart.
struct KindProfiles {
  const std::vector<Cuts>* known = nullptr;
  std::vector<Cuts> added;

  void Add(const Cuts& cuts, const std::vector<int>& parts,
           const std::vector<Cuts>* known_of_class) {
    known = known_of_class;
    const Cuts profile = PatternOf(cuts, parts, 0);
    const auto has = [&](const std::vector<Cuts>& list) {
      return std::find(list.begin(), list.end(), profile) != list.end();
    };
    if (HasOneOrder(profile, parts) || has(added)) return;
    if (known == nullptr || !has(*known)) added.push_back(profile);
  }

  // Adds a set of the known and the new profiles, if any are new. Returns whether it did.
  bool Keep(std::deque<std::vector<Cuts>>* sets) {
    if (added.empty()) {
      if (known == nullptr) known = &sets->front();
      return false;
    }
    if (known != nullptr) added.insert(added.end(), known->begin(), known->end());
    sets->push_back(std::move(added));
    known = &sets->back();
    return true;
  }
};

EliminateResult Branch(const SearchProblem& search, const std::vector<int>& parts,
                       const SearchOptions& options, SolveCache* cache, double* work) {
  SolveOptions solve;
  solve.deadline = options.eliminate.deadline;
  solve.max_nodes = options.max_nodes;
  solve.top = options.top;
  solve.elimination_work = options.elimination_work;
  solve.late_elimination_work = options.late_elimination_work;
  solve.max_work = options.max_work;
  solve.cache = cache;
  SolveResult solved = options.memory == nullptr
                           ? Solve(search.problem(), solve)
                           : Solve(search.Limited(*options.memory, parts), solve);
  EliminateResult result;
  result.lower_bound = solved.bound;
  *work = solved.work;
  if (solved.cost >= kForbidden) return result;
  result.status = solved.status == SolveStatus::kOptimal ? EliminateStatus::kOptimal
                                                         : EliminateStatus::kFeasible;
  result.values = std::move(solved.values);
  result.cost = solved.cost;
  return result;
}

}  // namespace

PartitionSearcher::PartitionSearcher(const Graph& graph, const StrategyTable& table,
                                     const CoarseGraph& coarse,
                                     const std::vector<int>& parts,
                                     const Restrictions& restrictions,
                                     const Objective& objective)
    : graph_(graph),
      table_(table),
      coarse_(coarse),
      parts_(parts),
      restrictions_(restrictions),
      model_(MakeCostModel(objective, graph, table, coarse, parts)) {}

SearchTables* PartitionSearcher::TablesOf(size_t ordered) {
  ordered = std::min(ordered, parts_.size());
  return &tables_
              .try_emplace(ordered, graph_, table_, coarse_, parts_, restrictions_,
                           *model_, ordered)
              .first->second;
}

SearchResult PartitionSearcher::Search(const ClassCuts& given,
                                       const SearchOptions& options) {
  SearchResult result;
  SearchProblem search(coarse_, given, options, TablesOf(options.ordered));
  if (!search.Make()) return search.is_late() ? Hurry(given, options) : result;
  const ChoiceProblem& problem = search.problem();
  EliminateResult solved =
      options.method == SolveBy::kBranch
          ? Branch(search, parts_, options, &solve_cache_, &result.work)
          : Eliminate(problem, options.eliminate, &cache_);
  if (options.method == SolveBy::kGreedy && solved.status != EliminateStatus::kTooBig) {
    // The mode's optimum still bounds what the greedy choice finds.
    solved.values = DecideGreedily(problem, search.LargestFirst(graph_));
    solved.cost = problem.Sum(solved.values);
    solved.status = solved.cost == solved.lower_bound ? EliminateStatus::kOptimal
                                                      : EliminateStatus::kFeasible;
  }
  result.status = solved.status;
  result.cost = solved.cost;
  result.lower_bound = solved.lower_bound;
  result.num_variables = static_cast<int>(problem.domain.size());
  if (solved.status != EliminateStatus::kTooBig) {
    result.cuts = search.Decode(solved.values);
  }
  return result;
}

ClassProfiles PartitionSearcher::WantedProfiles(const ClassCuts& given,
                                                const SearchOptions& options, int64_t top,
                                                int rounds) {
  SearchProblem search(coarse_, given, options, TablesOf(0));
  if (!search.Make()) return {};
  return search.Profiles(
      WantedValues(search.problem(), top, rounds, options.eliminate.deadline));
}

bool PartitionSearcher::TellApart(const ClassCuts& chosen, ExactProfiles* exact) {
  bool are_new = exact->tensors.empty();  // then those of one order are new
  exact->tensors.resize(chosen.tensors.size(), nullptr);
  exact->operators.resize(chosen.operators.size(), nullptr);
  std::map<Shape, KindProfiles> of_shape;
  for (size_t c = 0; c < chosen.tensors.size(); ++c) {
    of_shape[coarse_.tensors[c].shape].Add(chosen.tensors[c], parts_, exact->tensors[c]);
  }
  std::map<int, KindProfiles> of_signature;
  for (size_t p = 0; p < chosen.operators.size(); ++p) {
    const OpClass& op = coarse_.operators[p];
    if (op.elementwise) continue;
    of_signature[op.signature].Add(chosen.operators[p], parts_, exact->operators[p]);
  }
  if (exact_sets_.empty()) exact_sets_.emplace_back();  // the empty set
  for (auto& [shape, kind] : of_shape) are_new |= kind.Keep(&exact_sets_);
  for (auto& [signature, kind] : of_signature) are_new |= kind.Keep(&exact_sets_);
  for (size_t c = 0; c < chosen.tensors.size(); ++c) {
    exact->tensors[c] = of_shape[coarse_.tensors[c].shape].known;
  }
  for (size_t p = 0; p < chosen.operators.size(); ++p) {
    const OpClass& op = coarse_.operators[p];
    if (!op.elementwise) exact->operators[p] = of_signature[op.signature].known;
  }
  return are_new;
}

const std::vector<Cuts>* PartitionSearcher::Kept(std::vector<Cuts> profiles) {
  exact_sets_.push_back(std::move(profiles));
  return &exact_sets_.back();
}

ExactProfiles PartitionSearcher::ExactOf(const KnownProfiles& known) {
  ExactProfiles exact;
  if (exact_sets_.empty()) exact_sets_.emplace_back();
  const std::vector<Cuts>* none = &exact_sets_.front();
  std::map<Shape, const std::vector<Cuts>*> of_shape;
  for (const auto& [shape, profiles] : known.tensors) of_shape[shape] = Kept(profiles);
  std::map<int, const std::vector<Cuts>*> of_signature;
  for (const auto& [signature, profiles] : known.operators) {
    of_signature[signature] = Kept(profiles);
  }
  for (const TensorClass& tensor : coarse_.tensors) {
    const std::vector<Cuts>* profiles = of_shape[tensor.shape];
    exact.tensors.push_back(profiles == nullptr ? none : profiles);
  }
  for (const OpClass& op : coarse_.operators) {
    const std::vector<Cuts>* profiles =
        op.elementwise ? nullptr : of_signature[op.signature];
    exact.operators.push_back(op.elementwise || profiles != nullptr ? profiles : none);
  }
  return exact;
}

KnownProfiles PartitionSearcher::KnownOf(const ExactProfiles& exact) const {
  KnownProfiles known;
  known.parts = parts_;
  for (size_t c = 0; c < exact.tensors.size(); ++c) {
    known.tensors.emplace(coarse_.tensors[c].shape, *exact.tensors[c]);
  }
  for (size_t p = 0; p < exact.operators.size(); ++p) {
    if (exact.operators[p] == nullptr) continue;
    known.operators.emplace(coarse_.operators[p].signature, *exact.operators[p]);
  }
  return known;
}

ChoiceProblem PartitionSearcher::Problem(const ClassCuts& given) {
  const SearchOptions unlimited;
  SearchProblem search(coarse_, given, unlimited, TablesOf(unlimited.ordered));
  TOFU_CHECK(search.Make()) << "more than " << unlimited.max_alternatives
                            << " alternatives of one class";
  return search.problem();
}

SearchResult PartitionSearcher::Hurry(ClassCuts given, SearchOptions options) {
  for (size_t c = 0; c < given.tensors.size(); ++c) {
    const TensorChoices* choices =
        TablesOf(Cuts::kMaxSteps)
            ->Tensor(static_cast<int>(c), given.tensors[c], options.max_alternatives);
    if (choices == nullptr) return {};
    given.tensors[c] = choices->alternatives[0];
  }
  options.eliminate.deadline = Deadline::max();
  SearchResult result = Search(given, options);
  if (result.status == EliminateStatus::kOptimal)
    result.status = EliminateStatus::kFeasible;
  result.lower_bound = 0;
  return result;
}

}  // namespace tofu
