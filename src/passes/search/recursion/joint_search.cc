#include "passes/search/recursion/joint_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "passes/search/tilings/patterns.h"

namespace tofu {
namespace {

// Limits of the problem of all orders: alternatives per class, cells to fill (a few
// hundred nanoseconds each), and nodes to branch into.
constexpr size_t kMaxJointAlternatives = 512;
constexpr int64_t kMaxJointCells = int64_t{1} << 20;
constexpr int64_t kMaxJointNodes = 16;
// Limits of profiles: their number per class, the nodes of their problem, and the rounds
// to find those that a cheaper plan may have.
constexpr size_t kMaxProfiles = 1 << 12;
constexpr int64_t kProfileNodes = 4;
constexpr int kMaskRounds = 48;
// Rounds in which profiles are told apart, and the most steps that may trade places.
constexpr int kMaxRefinements = 40;
constexpr int kMaxTradingSteps = 3;
// Additions of one elimination if few rounds are left, or the solver's default is too
// low.
constexpr double kKnownWork = 4e8;
// Limit of branching where no elimination suffices, over all rounds, in rounds of the
// solver's ascent times cells: a third of a second.
constexpr double kRefineWork = 2e8;
constexpr int64_t kRefineNodes = 1;  // per round
// The relative gap above which the restriction would leave too many profiles.
constexpr double kMaxRestrictedGap = 0.005;

SearchOptions SearchByBranch(Deadline deadline, int64_t nodes) {
  SearchOptions options;
  options.method = SolveBy::kBranch;
  options.max_nodes = nodes;
  options.eliminate.deadline = deadline;
  options.tables_deadline = deadline;
  return options;
}

class JointSearch {
 public:
  JointSearch(const ClassCuts& given, const JointOptions& options,
              PartitionSearcher* searcher)
      : given_(given), options_(options), searcher_(searcher) {}

  JointResult Run() {
    Tell("bounding all plans");
    if (!options_.is_quick) BoundByProfiles();
    if (!options_.is_quick && !IsDone()) Refine();
    Tell("deciding all steps together");
    if (IsDone() || SolveOrders(nullptr)) return std::move(result_);
    const double gap = static_cast<double>(Best() - result_.lower_bound);
    if (options_.is_quick || gap > kMaxRestrictedGap * static_cast<double>(Best())) {
      return std::move(result_);
    }
    Tell("deciding what a cheaper plan can have");
    SolveRestricted();
    return std::move(result_);
  }

 private:
  void Tell(const char* stage) const {
    if (options_.on_progress) {
      options_.on_progress({stage, Best(), result_.lower_bound});
    }
  }

  int64_t Best() const {
    return result_.found ? std::min(result_.found->cost, options_.best_cost)
                         : options_.best_cost;
  }

  bool IsDone() const {
    return result_.lower_bound >= Best() || IsPast(options_.deadline);
  }

  void BoundByProfiles() {
    const SearchResult found =
        searcher_->Search(given_, ProfileSearch(options_.deadline));
    if (found.status == EliminateStatus::kTooBig) return;
    result_.lower_bound = found.lower_bound;
    chosen_ = found.cuts;
  }

  // Replaces the profiles that the bound's optimum chose by their cuts, and solves again,
  // until the optimum is a plan.
  void Refine() {
    if (chosen_.tensors.empty() || MostTrading(searcher_->parts()) > kMaxTradingSteps) {
      return;
    }
    ExactProfiles exact;
    SearchOptions options = ProfileSearch(options_.deadline);
    options.exact = &exact;
    options.max_nodes = 0;
    options.max_cells = kMaxJointCells;
    if (options_.known != nullptr) {
      exact = searcher_->ExactOf(*options_.known);
      searcher_->TellApart(*options_.best, &exact);
      options.elimination_work = kKnownWork;
    }
    for (int round = 0; round < kMaxRefinements && !IsDone(); ++round) {
      Tell("telling profiles apart");
      const bool is_new = searcher_->TellApart(chosen_, &exact);
      if (!is_new && (round > 0 || options_.known == nullptr)) return;
      result_.known = searcher_->KnownOf(exact);
      SearchResult found = SearchHarder(&options);
      // The search may have looked only for choices that cost less than the best plan.
      result_.lower_bound =
          std::max(result_.lower_bound, std::min(found.lower_bound, Best()));
      if (found.status == EliminateStatus::kTooBig) return;
      options.max_work -= found.work;
      if (options.max_work <= 0) return;
      chosen_ = found.cuts;
      ExactProfiles seen = exact;
      if (searcher_->TellApart(chosen_, &seen) || found.cost > Best()) continue;
      result_.found = std::move(found);
    }
  }

  // Searches by elimination; if that is too large, by a larger one, and then by
  // branching.
  SearchResult SearchHarder(SearchOptions* options) {
    if (options->max_nodes > 0) options->top = Best();
    SearchResult found = searcher_->Search(given_, *options);
    if (found.status != EliminateStatus::kTooBig || options->max_nodes > 0) return found;
    if (options->elimination_work < kKnownWork) {
      options->elimination_work = kKnownWork;
    } else {
      options->max_nodes = kRefineNodes;
      options->max_work = kRefineWork;
      options->late_elimination_work = kKnownWork;
    }
    return SearchHarder(options);
  }

  // Returns false if the problem is too large.
  bool SolveOrders(const ClassProfiles* profiles) {
    SearchOptions options = SearchByBranch(options_.deadline, kMaxJointNodes);
    options.profiles = profiles;
    options.max_alternatives = kMaxJointAlternatives;
    options.max_cells = options_.is_quick ? options_.quick_cells : kMaxJointCells;
    SearchResult found = searcher_->Search(given_, options);
    if (found.status == EliminateStatus::kTooBig) return false;
    // A plan with a profile that is left out costs no less than the best one.
    const int64_t bound =
        profiles == nullptr ? found.lower_bound : std::min(found.lower_bound, Best());
    result_.lower_bound = std::max(result_.lower_bound, bound);
    if (found.cost <= Best()) result_.found = std::move(found);
    return true;
  }

  void SolveRestricted() {
    const ClassProfiles cheaper = searcher_->WantedProfiles(
        given_, ProfileSearch(options_.deadline), Best(), kMaskRounds);
    const bool is_impossible =
        std::any_of(cheaper.tensors.begin(), cheaper.tensors.end(),
                    [](const std::vector<Cuts>& profiles) { return profiles.empty(); });
    if (is_impossible) {
      result_.lower_bound = Best();  // no plan costs less
    } else if (!cheaper.tensors.empty()) {
      SolveOrders(&cheaper);
    }
  }

  const ClassCuts& given_;
  const JointOptions& options_;
  PartitionSearcher* const searcher_;
  JointResult result_;
  ClassCuts chosen_;  // the best choice of profiles
};

}  // namespace

SearchOptions ProfileSearch(Deadline deadline) {
  SearchOptions options = SearchByBranch(deadline, kProfileNodes);
  options.ordered = 0;
  options.max_alternatives = kMaxProfiles;
  return options;
}

JointResult SearchJointly(const ClassCuts& given, const JointOptions& options,
                          PartitionSearcher* searcher) {
  return JointSearch(given, options, searcher).Run();
}

Solution ImproveJointly(const PlanProblem& problem, Solution best, int64_t quick_cells) {
  const RecursiveOptions& wish = problem.options;
  JointOptions joint;
  joint.deadline = wish.deadline;
  joint.best_cost = best.cost;
  joint.is_quick = wish.is_quick;
  joint.quick_cells = quick_cells;
  if (wish.known != nullptr && wish.known->parts == wish.parts) {
    joint.known = wish.known;
    joint.best = &best.cuts;
  }
  if (wish.on_progress) {
    joint.on_progress = [&](SearchProgress now) {
      now.lower_bound = std::max(now.lower_bound, best.lower_bound);
      wish.on_progress(now);
    };
  }
  JointResult found = SearchJointly(wish.given, joint, problem.searcher);
  best.lower_bound = std::max(best.lower_bound, found.lower_bound);
  if (wish.known != nullptr) *wish.known = std::move(found.known);
  return found.found ? Cheaper(std::move(best), std::move(*found.found)) : best;
}

}  // namespace tofu
