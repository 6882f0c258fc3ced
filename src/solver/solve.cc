#include "solver/solve.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "solver/branch_and_bound.h"
#include "solver/elimination/eliminate_core.h"
#include "solver/problem/merge_classes.h"
#include "solver/problem/split_core.h"
#include "solver/reduce_core.h"

namespace tofu {
namespace {

// Solves the parts of a core one at a time, and keeps track of their sum.
class PartsSearch {
 public:
  PartsSearch(const ChoiceProblem& problem, const SolveOptions& options)
      : problem_(problem), options_(options) {}

  SolveResult Run() {
    MergedClasses merged = MergeClasses(problem_);
    if (merged.core.infeasible) return Infeasible();
    ReducedCore reduced =
        ReduceCore(std::move(merged.core), {},
                   options_.cache == nullptr ? nullptr : &options_.cache->memo);
    if (reduced.core.infeasible) return Infeasible();
    lift_ = [outer = std::move(merged.lift), inner = std::move(reduced.lift)](
                const std::vector<int>& values) { return outer(inner(values)); };
    constant_ = reduced.core.constant;
    parts_ = SplitCore(reduced.core);
    found_.resize(parts_.size());
    values_.assign(reduced.core.domain.size(), 0);
    bool done = true;
    for (size_t i = 0; i < parts_.size() && !stopped_; ++i) {
      if (i > 0 && found_[i - 1].done && AreEqual(parts_[i - 1].core, parts_[i].core)) {
        Take(i, found_[i - 1]);
      } else {
        Take(i, SolvePart(i));
      }
      if (found_[i].done && found_[i].values.empty()) return Infeasible();
      done = done && found_[i].done;
    }
    return Conclude(done && !stopped_);
  }

 private:
  SolveResult Infeasible() const {
    SolveResult result;
    result.status = SolveStatus::kInfeasible;
    result.bound = options_.top;
    result.nodes = nodes_;
    result.work = work_;
    return result;
  }

  BranchResult SolvePart(size_t i) {
    const ChoiceProblem& core = parts_[i].core;
    BranchResult result;
    // Earlier parts that were not solved may still turn out to cost less.
    const int64_t top = options_.top - std::min(options_.top, BoundWithout(i));
    const auto eliminated =
        EliminateCore(core, std::min(top, core.HighestCost() + 1),
                      options_.elimination_work, options_.deadline,
                      options_.cache == nullptr ? nullptr : &options_.cache->elimination);
    if (eliminated) {
      result.values = *eliminated;
      result.cost = core.Cost(result.values);
      result.bound = result.cost;
      result.done = true;
      if (result.cost >= top) result.values.clear();
      return result;
    }
    BranchOptions options;
    options.top = top;
    options.max_nodes = options_.max_nodes;
    options.max_work = options_.max_work;
    options.elimination_work = options_.late_elimination_work;
    options.threads = options_.threads;
    options.deadline = DeadlineOf(i);
    options.on_progress = [&](const std::vector<int>* values, int64_t bound) {
      found_[i].bound = std::max(found_[i].bound, bound);
      if (values != nullptr) {
        found_[i].values = *values;
        found_[i].cost = core.Cost(*values);
      }
      stopped_ = !Tell(values != nullptr);
      return !stopped_;
    };
    result = BranchAndBound(core, options);
    nodes_ += result.nodes;
    work_ += result.work;
    return result;
  }

  // Gives a part its share of the time left: its values over those of all parts left.
  Deadline DeadlineOf(size_t part) const {
    const auto values = [](const CorePart& p) {
      return std::accumulate(p.core.domain.begin(), p.core.domain.end(), 0.0);
    };
    double left = 0;
    for (size_t i = part; i < parts_.size(); ++i) left += values(parts_[i]);
    if (options_.deadline == Deadline::max() || part + 1 == parts_.size()) {
      return options_.deadline;
    }
    const Deadline now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> time = options_.deadline - now;
    return now + std::chrono::duration_cast<Deadline::duration>(
                     time * (values(parts_[part]) / left));
  }

  void Take(size_t i, BranchResult result) {
    found_[i] = std::move(result);
    if (!stopped_) stopped_ = !Tell(!found_[i].values.empty());
  }

  int64_t BoundWithout(size_t part) const {
    int64_t bound = constant_;
    for (size_t i = 0; i < found_.size(); ++i) {
      if (i != part) bound = SaturatingAdd(bound, found_[i].bound);
    }
    return bound;
  }

  int64_t Bound() const { return std::min(BoundWithout(found_.size()), options_.top); }

  // The values of the whole problem; empty while a part has none.
  std::vector<int> Values() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (found_[i].values.empty() && parts_[i].core.num_variables() > 0) return {};
      for (size_t k = 0; k < parts_[i].variables.size(); ++k) {
        values_[parts_[i].variables[k]] = found_[i].values[k];
      }
    }
    return lift_(values_);
  }

  // Reports progress; returns false if the search must end.
  bool Tell(bool is_better) {
    if (!options_.on_progress) return true;
    SolveProgress progress;
    std::vector<int> values;
    if (is_better) values = Values();
    if (!values.empty() && problem_.Cost(values) < best_told_) {
      best_told_ = problem_.Cost(values);
      progress.values = &values;
    }
    const int64_t bound = std::min(Bound(), best_told_);
    bound_told_ = std::max(bound_told_, bound);
    progress.cost = best_told_;
    progress.bound = bound_told_;
    return options_.on_progress(progress);
  }

  SolveResult Conclude(bool done) {
    SolveResult result;
    result.nodes = nodes_;
    result.work = work_;
    result.values = Values();
    if (result.values.empty() && !problem_.domain.empty()) {
      result.bound = Bound();
      return result;
    }
    result.cost = problem_.Cost(result.values);
    if (result.cost >= options_.top) return done ? Infeasible() : SolveResult{};
    result.bound = done ? result.cost : std::min(Bound(), result.cost);
    TOFU_CHECK(!done || Bound() == result.cost)
        << "proved " << Bound() << ", but the values cost " << result.cost;
    TOFU_CHECK(problem_.Fits(result.values))
        << "the values use " << problem_.PeakBytes(result.values) << " bytes of "
        << problem_.Limit();
    result.status =
        result.bound == result.cost ? SolveStatus::kOptimal : SolveStatus::kFeasible;
    return result;
  }

  const ChoiceProblem& problem_;
  const SolveOptions& options_;
  Lift lift_;
  int64_t constant_ = 0;
  std::vector<CorePart> parts_;
  std::vector<BranchResult> found_;  // [part]
  std::vector<int> values_;          // of the whole core
  int64_t nodes_ = 0;
  double work_ = 0;
  int64_t best_told_ = kForbidden;
  int64_t bound_told_ = -1;
  bool stopped_ = false;
};

}  // namespace

SolveResult Solve(const ChoiceProblem& problem, const SolveOptions& options) {
  return PartsSearch(problem, options).Run();
}

}  // namespace tofu
