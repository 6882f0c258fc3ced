#include "passes/search/joint_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "passes/search/patterns.h"

namespace tofu {
namespace {

// The problem of all orders is solved if it has at most this many alternatives per class
// and cells to fill (each a few hundred nanoseconds); then in so many nodes.
constexpr size_t kMaxAlternatives = 512;
constexpr int64_t kMaxCells = int64_t{1} << 20;
constexpr int64_t kMaxNodes = 16;
// Profiles per class, nodes of their problem, and rounds to find those still wanted.
constexpr size_t kMaxProfiles = 1 << 12;
constexpr int64_t kProfileNodes = 4;
constexpr int kMaskRounds = 48;
// Rounds in which profiles are told apart, and the most steps that may trade places.
constexpr int kMaxRefinements = 40;
constexpr int kMaxTradingSteps = 3;
// Additions for one elimination where few rounds are left, or fewer do not do.
constexpr double kKnownWork = 4e8;
// What branching may take where no elimination does, of all rounds together, in rounds
// of the solver's ascent times cells: a third of a second.
constexpr double kRefineWork = 2e8;
constexpr int64_t kRefineNodes = 1;  // in a round
// The gap above which that is hopeless: too many profiles would be left.
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

  // Tells the cuts of the profiles apart that the bound's optimum chose, and solves
  // again, until it is a plan.
  void Refine() {
    if (chosen_.tensors.empty() || MostTrading(searcher_->parts()) > kMaxTradingSteps) {
      return;
    }
    ExactProfiles exact;
    SearchOptions options = ProfileSearch(options_.deadline);
    options.exact = &exact;
    options.max_nodes = 0;
    options.max_cells = kMaxCells;
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
      // Nothing that costs less is left, or the problem is too large.
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

  // By a larger elimination once a smaller one does not do, and then by branching.
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

  // False if the problem is too large.
  bool SolveOrders(const ClassProfiles* profiles) {
    SearchOptions options = SearchByBranch(options_.deadline, kMaxNodes);
    options.profiles = profiles;
    options.max_alternatives = kMaxAlternatives;
    options.max_cells = options_.is_quick ? options_.quick_cells : kMaxCells;
    SearchResult found = searcher_->Search(given_, options);
    if (found.status == EliminateStatus::kTooBig) return false;
    // Plans with other profiles cost no less than the best one.
    const int64_t bound =
        profiles == nullptr ? found.lower_bound : std::min(found.lower_bound, Best());
    result_.lower_bound = std::max(result_.lower_bound, bound);
    if (found.cost <= Best()) result_.found = std::move(found);
    return true;
  }

  void SolveRestricted() {
    const ClassProfiles wanted = searcher_->WantedProfiles(
        given_, ProfileSearch(options_.deadline), Best(), kMaskRounds);
    const bool none =
        std::any_of(wanted.tensors.begin(), wanted.tensors.end(),
                    [](const std::vector<Cuts>& profiles) { return profiles.empty(); });
    if (none) {
      result_.lower_bound = Best();  // no plan costs less
    } else if (!wanted.tensors.empty()) {
      SolveOrders(&wanted);
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
