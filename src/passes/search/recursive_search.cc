#include "passes/search/recursive_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "graph/box.h"
#include "passes/search/class_cuts.h"
#include "passes/search/dump.h"
#include "passes/search/joint_search.h"
#include "passes/search/memory_search.h"
#include "passes/search/predict.h"

namespace tofu {
namespace {

constexpr int kMaxSweeps = 8;      // times to decide every step again
constexpr int kMaxOrders = 24;     // orders of the steps to try
constexpr int kMaxSearches = 24;   // to improve, in total
constexpr int kMaxPartOrders = 6;  // orders of unequal parts to try
// To decide two steps again.
constexpr size_t kPairAlternatives = 128;
constexpr int64_t kPairCells = int64_t{1} << 19;
constexpr int kMaxPairSearches = 40;
// Cells to fill when all steps are decided at once: minutes.
constexpr int64_t kFlatCells = int64_t{1} << 33;
// The same before steps are only swept: a few milliseconds.
constexpr int64_t kSweptCells = int64_t{1} << 14;

std::vector<int> Prefix(const std::vector<int>& parts, size_t steps) {
  return {parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(steps)};
}

bool IsNothingGiven(const ClassCuts& given) {
  for (const std::vector<Cuts>* list : {&given.tensors, &given.operators}) {
    for (const Cuts& cuts : *list) {
      for (int cut : cuts) {
        if (cut != kFree) return false;
      }
    }
  }
  return true;
}

class Recursion {
 public:
  Recursion(const Graph& graph, const StrategyTable& table, const CoarseGraph& coarse,
            const RecursiveOptions& options)
      : graph_(graph),
        table_(table),
        coarse_(coarse),
        options_(options),
        parts_(options.parts),
        given_(options.given),
        searcher_(options.searcher != nullptr
                      ? *options.searcher
                      : own_searcher_.emplace(graph, table, coarse, parts_,
                                              options.restrictions, options.time)) {}

  Plan Run() {
    if (options_.start != nullptr) {
      Start();
      if (options_.memory != nullptr) {
        FitMemory();
        return MakePlan();
      }
      if (parts_.size() > 1) {
        SolveJointly();
      } else {
        DecideOnlyStep();
      }
      if (options_.method == Method::kSweep && best_cost_ > lower_bound_) {
        Sweep(best_, kMaxSweeps);
      }
      return MakePlan();
    }
    if (options_.method == Method::kJoint || options_.method == Method::kGreedy) {
      DecideAllAtOnce();
      return MakePlan();
    }
    Recurse();
    if (options_.method == Method::kImproved && parts_.size() > 1) {
      SolveJointly();
      if (best_cost_ > lower_bound_) TryOrders();
      if (options_.on_search) {
        options_.on_search("improve", DumpImprovement(recursion_cost_, best_cost_,
                                                      lower_bound_, Unit()));
      }
    }
    return MakePlan();
  }

 private:
  SearchOptions Options() const {
    SearchOptions options;
    options.eliminate.max_table = options_.max_table;
    options.eliminate.deadline = options_.deadline;
    return options;
  }

  void DecideAllAtOnce() {
    Tell("all steps at once");
    SearchOptions options = Options();
    options.max_cells = kFlatCells;
    options.tables_deadline = options_.deadline;
    if (options_.method == Method::kGreedy) options.method = SolveBy::kGreedy;
    SearchResult found = searcher_.Search(given_, options);
    TOFU_CHECK_USER(found.status != EliminateStatus::kTooBig, Blame::kPlan)
        << "plan: found a problem that is too large for a search over all "
        << parts_.size()
        << " steps at once, expected one that its tables hold within the "
        << "time limit; raise the limit or choose mode \"tofu\", which goes step by step";
    optimal_ = options_.is_proven && found.status == EliminateStatus::kOptimal;
    lower_bound_ = options_.is_proven ? found.lower_bound : 0;
    best_cost_ = found.cost;
    if (options_.on_search) {
      options_.on_search("search all steps",
                         DumpSearch(coarse_, found, parts_, 0, Unit()));
    }
    best_ = std::move(found.cuts);
  }

  void Tell(std::string stage) const {
    if (!options_.on_progress) return;
    options_.on_progress({std::move(stage), best_cost_, lower_bound_});
  }

  const char* Unit() const { return options_.time == nullptr ? "bytes" : "ns"; }

  bool IsOver() const { return searches_left_ <= 0 || IsPast(options_.deadline); }

  void Start() {
    best_ = ClassCutsOf(graph_, coarse_, *options_.start);
    optimal_ = options_.start->status != PlanStatus::kFeasible;
    best_cost_ = options_.start->cost();
    // Operators that these classes merge may cost something else.
    if (options_.time == nullptr) best_cost_ = BestBytes();
    recursion_cost_ = best_cost_;
  }

  // Keeps the start if no plan within the limit is found.
  void FitMemory() {
    Tell("searching within the memory limit");
    SearchOptions options = Options();
    options.memory = options_.memory;
    optimal_ = false;
    MemorySearchResult found =
        SearchWithinMemory(given_, best_, parts_, options, &searcher_);
    lower_bound_ = found.lower_bound;
    if (!found.found) return;
    best_cost_ = found.found->cost;
    best_ = std::move(found.found->cuts);
  }

  // Which bounds all plans of one step.
  void DecideOnlyStep() {
    SearchResult found = searcher_.Search(given_, Options());
    lower_bound_ = found.lower_bound;
    Accept(std::move(found));
  }

  // The paper's recursion: step i given steps 1 .. i-1.
  void Recurse() {
    ClassCuts cuts;
    cuts.tensors.resize(coarse_.tensors.size());
    cuts.operators.resize(coarse_.operators.size());
    int64_t before = 0;
    for (size_t step = 0; step < parts_.size(); ++step) {
      Tell("step " + std::to_string(step + 1) + " of " + std::to_string(parts_.size()));
      for (size_t c = 0; c < cuts.tensors.size(); ++c) {
        cuts.tensors[c].push_back(given_.tensors[c][step]);
      }
      for (size_t p = 0; p < cuts.operators.size(); ++p) {
        cuts.operators[p].push_back(given_.operators[p][step]);
      }
      SearchResult found = searcher_.Search(cuts, Options());
      optimal_ = optimal_ && found.status == EliminateStatus::kOptimal;
      if (step == 0 && (parts_.size() == 1 || DoFirstStepsBound())) {
        lower_bound_ = found.lower_bound;
      }
      if (options_.on_search) {
        options_.on_search(
            "search step " + std::to_string(step + 1),
            DumpSearch(coarse_, found, Prefix(parts_, step + 1), before, Unit()));
      }
      before = found.cost;
      cuts = std::move(found.cuts);
    }
    best_ = std::move(cuts);
    recursion_cost_ = best_cost_ = before;
  }

  // Whether no plan of all steps costs less than its first step. An operator that reduces
  // an output in different ways may be whole at the first step of a plan although the
  // first step by itself would split it. If operators skip elements, the first step also
  // counts those between what later steps need.
  bool DoFirstStepsBound() const {
    if (options_.time != nullptr) return false;  // later steps may also save time
    return std::none_of(
        coarse_.operators.begin(), coarse_.operators.end(), [&](const OpClass& op) {
          const StrategyRow* row = table_.row(op.nodes[0]);
          return row != nullptr &&
                 (MayMixReductions(*row) || MaySkipElements(graph_, *row, op.nodes[0]));
        });
  }

  // All steps at once: bounds the plan, and finds the optimum where that is not too dear.
  void SolveJointly() {
    JointOptions joint;
    joint.search = Options();
    joint.best_cost = best_cost_;
    joint.is_quick = options_.is_quick;
    if (options_.method == Method::kSweep) joint.quick_cells = kSweptCells;
    if (options_.known != nullptr && options_.known->parts == parts_) {
      joint.known = options_.known;
      joint.best = &best_;
    }
    if (options_.on_progress) {
      joint.on_progress = [this](SearchProgress now) {
        now.lower_bound = std::max(now.lower_bound, lower_bound_);
        options_.on_progress(now);
      };
    }
    JointResult found = SearchJointly(given_, joint, &searcher_);
    lower_bound_ = std::max(lower_bound_, found.lower_bound);
    if (options_.known != nullptr) *options_.known = std::move(found.known);
    if (found.found) Accept(std::move(*found.found));
  }

  void Accept(SearchResult found) {
    if (found.cost >= best_cost_) return;
    best_ = std::move(found.cuts);
    best_cost_ = found.cost;
  }

  // Steps with equal parts may be reordered: every extent still divides. Each order is
  // swept once, the best one until it stops improving.
  void TryOrders() {
    const ClassCuts start = best_;
    std::vector<size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), 0);
    Sweep(start, 1);
    for (int tried = 1; tried < kMaxOrders && !IsOver(); ++tried) {
      if (best_cost_ == lower_bound_) return;
      if (!std::next_permutation(order.begin(), order.end())) break;
      if (IsPossible(order)) Sweep(Permuted(start, order), 1);
    }
    Sweep(best_, kMaxSweeps);
    if (!options_.is_quick) SweepPairs();
  }

  // Decides every two steps again together, given the others, until none gets cheaper.
  void SweepPairs() {
    SearchOptions options = Options();
    options.method = SolveBy::kBranch;
    options.max_alternatives = kPairAlternatives;
    options.max_cells = kPairCells;
    options.max_nodes = 1;
    const size_t steps = parts_.size();
    int left = kMaxPairSearches;
    size_t unchanged = 0;
    for (size_t i = 0; unchanged < steps * steps; i = (i + 1) % (steps * steps)) {
      ++unchanged;
      if (i / steps >= i % steps) continue;
      if (--left < 0 || best_cost_ == lower_bound_ || IsPast(options_.deadline)) return;
      Tell("deciding two steps again");
      ClassCuts cuts = best_;
      Free(i / steps, &cuts);
      Free(i % steps, &cuts);
      SearchResult found = searcher_.Search(cuts, options);
      if (found.status == EliminateStatus::kTooBig || found.cost >= best_cost_) continue;
      Accept(std::move(found));
      unchanged = 0;
    }
  }

  bool IsPossible(const std::vector<size_t>& order) const {
    for (size_t i = 0; i < order.size(); ++i) {
      if (parts_[order[i]] != parts_[i]) return false;
    }
    return std::is_sorted(order.begin(), order.end()) || IsNothingGiven(given_);
  }

  ClassCuts Permuted(ClassCuts cuts, const std::vector<size_t>& order) const {
    for (std::vector<Cuts>* list : {&cuts.tensors, &cuts.operators}) {
      for (Cuts& one : *list) {
        const Cuts old = one;
        for (size_t i = 0; i < order.size() && !old.empty(); ++i) one[i] = old[order[i]];
      }
    }
    return cuts;
  }

  // Decides every step again, given the others, until none gets cheaper.
  void Sweep(ClassCuts cuts, int sweeps) {
    int64_t cost = std::numeric_limits<int64_t>::max();
    size_t unchanged = 0;
    for (size_t i = 0; i < sweeps * parts_.size(); ++i) {
      if (unchanged == parts_.size() || IsOver()) return;
      --searches_left_;
      Tell("deciding each step again");
      const std::vector<int> before = Free(i % parts_.size(), &cuts);
      SearchResult found = searcher_.Search(cuts, Options());
      unchanged = found.cost < cost ? 0 : unchanged + 1;
      if (found.cost >= cost) {
        Restore(i % parts_.size(), before, &cuts);
        continue;
      }
      cost = found.cost;
      cuts = std::move(found.cuts);
      if (cost >= best_cost_) continue;
      best_ = cuts;
      best_cost_ = cost;
    }
  }

  // Returns the old decisions, first of tensors and then of operators.
  std::vector<int> Free(size_t step, ClassCuts* cuts) const {
    std::vector<int> before;
    before.reserve(cuts->tensors.size() + cuts->operators.size());
    for (size_t c = 0; c < cuts->tensors.size(); ++c) {
      before.push_back(cuts->tensors[c][step]);
      cuts->tensors[c][step] = given_.tensors[c][step];
    }
    for (size_t p = 0; p < cuts->operators.size(); ++p) {
      before.push_back(cuts->operators[p][step]);
      cuts->operators[p][step] = given_.operators[p][step];
    }
    return before;
  }

  static void Restore(size_t step, const std::vector<int>& before, ClassCuts* cuts) {
    size_t next = 0;
    for (std::vector<Cuts>* list : {&cuts->tensors, &cuts->operators}) {
      for (Cuts& one : *list) one[step] = before[next++];
    }
  }

  Plan MakePlan() {
    Plan plan;
    plan.parts = parts_;
    plan.status = best_cost_ <= lower_bound_ ? PlanStatus::kOptimal
                  : optimal_                 ? PlanStatus::kStepsOptimal
                                             : PlanStatus::kFeasible;
    const bool is_time = options_.time != nullptr;
    if (!is_time) plan.lower_bound_bytes = std::min(lower_bound_, best_cost_);
    for (int tensor : coarse_.tensor_class) {
      plan.tensor_cuts.push_back(best_.tensors[tensor]);
    }
    plan.node_bytes.assign(graph_.nodes.size(), 0);
    plan.step_bytes.assign(parts_.size(), 0);
    for (int node = 0; node < graph_.num_nodes(); ++node) {
      plan.op_cuts.push_back(NodeCuts(node));
    }
    for (size_t p = 0; p < coarse_.operators.size(); ++p)
      AddBytes(static_cast<int>(p), &plan);
    if (is_time) {
      plan.objective = Objective::kTime;
      Prediction found =
          PredictClasses(graph_, table_, coarse_, best_, parts_, *options_.time);
      plan.predicted = std::move(found.time);
      plan.routes = std::move(found.routes);
      plan.output_routes = std::move(found.output_routes);
      plan.predicted->lower_bound_ns = std::min(lower_bound_, best_cost_);
    }
    TOFU_CHECK(plan.cost() == best_cost_) << "the plan's operators cost " << plan.cost()
                                          << ", the search found " << best_cost_;
    return plan;
  }

  Cuts NodeCuts(int node) const {
    const int p = coarse_.op_class[node];
    if (p < 0) return Cuts(parts_.size(), kReplicated);
    if (!coarse_.operators[p].elementwise) return best_.operators[p];
    return ElementwiseCuts(*table_.row(node),
                           best_.tensors[coarse_.operators[p].follows]);
  }

  // Bytes of one operator of class p after each step; equal operators with equal
  // cuts share them.
  const std::vector<int64_t>& BytesBySteps(int p) {
    const OpClass& op = coarse_.operators[p];
    std::vector<int> key = {op.signature};
    if (!op.elementwise) {
      key.insert(key.end(), best_.operators[p].begin(), best_.operators[p].end());
    }
    for (const OpSlot& slot : op.slots) {
      const Cuts& cuts = best_.tensors[slot.tensor_class];
      key.insert(key.end(), {slot.is_output ? 1 : 0, slot.index});
      key.insert(key.end(), cuts.begin(), cuts.end());
    }
    std::vector<int64_t>& bytes = bytes_by_steps_[key];
    for (size_t steps = bytes.size() + 1; steps <= parts_.size(); ++steps) {
      bytes.push_back(ClassBytes(graph_, table_, coarse_, best_, p, steps, parts_));
    }
    return bytes;
  }

  int64_t BestBytes() {
    int64_t bytes = 0;
    for (size_t p = 0; p < coarse_.operators.size(); ++p) {
      bytes += BytesBySteps(static_cast<int>(p)).back() *
               static_cast<int64_t>(coarse_.operators[p].nodes.size());
    }
    return bytes;
  }

  void AddBytes(int p, Plan* plan) {
    const std::vector<int>& nodes = coarse_.operators[p].nodes;
    const std::vector<int64_t>& bytes = BytesBySteps(p);
    int64_t before = 0;
    for (size_t step = 0; step < parts_.size(); ++step) {
      plan->step_bytes[step] +=
          (bytes[step] - before) * static_cast<int64_t>(nodes.size());
      before = bytes[step];
    }
    for (int node : nodes) plan->node_bytes[node] = before;
  }

  const Graph& graph_;
  const StrategyTable& table_;
  const CoarseGraph& coarse_;
  const RecursiveOptions& options_;
  const std::vector<int>& parts_;
  const ClassCuts& given_;
  std::optional<PartitionSearcher> own_searcher_;  // if none was given
  PartitionSearcher& searcher_;
  int searches_left_ = kMaxSearches;
  std::map<std::vector<int>, std::vector<int64_t>> bytes_by_steps_;
  ClassCuts best_;
  int64_t best_cost_ = -1;  // none yet
  int64_t recursion_cost_ = 0;
  int64_t lower_bound_ = 0;
  bool optimal_ = true;  // every step of the recursion is
};

}  // namespace

Plan SearchRecursively(const Graph& graph, const StrategyTable& table,
                       const CoarseGraph& coarse, const RecursiveOptions& options) {
  Plan best = Recursion(graph, table, coarse, options).Run();
  if (options.method != Method::kImproved || !IsNothingGiven(options.given)) return best;
  // Nested tiles differ with the order of unequal parts; ties stay with the given one.
  // Other orders are searched in full only where a quick search of them finds more.
  RecursiveOptions other = options;
  KnownProfiles known;
  other.known = options.known == nullptr ? nullptr : &known;
  other.on_search = nullptr;
  if (options.on_progress) {
    other.on_progress = [&](const SearchProgress&) {
      options.on_progress({"other orders of the parts", best.cost(), best.lower_bound()});
    };
  }
  std::sort(other.parts.begin(), other.parts.end());
  for (int tried = 1; options.may_reorder && tried < kMaxPartOrders; ++tried) {
    if (best.cost() == 0 || IsPast(options.deadline)) break;
    if (other.parts != options.parts) {
      for (const bool is_quick : {true, false}) {
        other.is_quick = is_quick;
        Plan plan = Recursion(graph, table, coarse, other).Run();
        if (plan.cost() >= best.cost()) break;
        best = std::move(plan);
        if (options.known != nullptr) *options.known = known;
      }
    }
    if (!std::next_permutation(other.parts.begin(), other.parts.end())) break;
  }
  return best;
}

std::vector<int> PrimeFactors(int workers) {
  std::vector<int> factors;
  for (int divisor = 2; divisor * divisor <= workers; ++divisor) {
    for (; workers % divisor == 0; workers /= divisor) factors.push_back(divisor);
  }
  if (workers > 1) factors.push_back(workers);
  std::reverse(factors.begin(), factors.end());
  return factors;
}

}  // namespace tofu
