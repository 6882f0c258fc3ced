#include "graph/cuts.h"

#include <algorithm>
#include <utility>

namespace tofu {
namespace {

class Enumerator {
 public:
  Enumerator(CutExtents extents, const std::vector<int>& candidates, const Cuts& given,
             const std::vector<int>& parts, WholeStep whole, size_t limit)
      : extents_(std::move(extents)),
        given_(given),
        parts_(parts),
        whole_(whole),
        limit_(limit),
        cuts_(given.size(), kReplicated) {
    for (int candidate : candidates) {
      (extents_.MakesTerms(candidate) ? terms_ : candidates_).push_back(candidate);
    }
  }

  // Tries first to meet both rules for given decisions: whole only if nothing can be cut,
  // and cut evenly if possible. If that is impossible, drops the first rule, then both.
  std::vector<Cuts> Run(bool* complete) {
    Step(0);
    whole_as_given_ = true;
    if (found_.empty()) Step(0);
    may_be_uneven_ = true;
    if (found_.empty()) Step(0);
    *complete = complete_;
    return std::move(found_);
  }

 private:
  void Take(size_t step, int candidate) {
    cuts_[step] = candidate;
    if (candidate == kReplicated) return Step(step + 1);
    extents_.Cut(candidate, parts_[step]);
    Step(step + 1);
    extents_.Undo(candidate, parts_[step]);
  }

  // Whether a step may cut the given dimension: evenly, or if it cuts nothing evenly.
  bool MayCut(int given, int parts) const {
    if (!extents_.CanCut(given, parts)) return false;
    if (may_be_uneven_ || extents_.MayBeUneven(given)) return true;
    if (extents_.CutsEvenly(given, parts)) return true;
    return std::none_of(candidates_.begin(), candidates_.end(), [&](int candidate) {
      return extents_.CutsEvenly(candidate, parts);
    });
  }

  // Whether a given step is whole although it could cut a dimension, with all other steps
  // unchanged.
  bool IsWholeWithoutNeed() const {
    if (whole_as_given_ || whole_ == WholeStep::kAlways) return false;
    for (size_t step = 0; step < given_.size(); ++step) {
      if (given_[step] != kReplicated) continue;
      for (int candidate : candidates_) {
        if (extents_.CanCut(candidate, parts_[step])) return true;
      }
    }
    return false;
  }

  void Step(size_t step) {
    if (!complete_) return;
    if (step == given_.size()) {
      if (IsWholeWithoutNeed()) return;
      complete_ = found_.size() < limit_;
      if (complete_) found_.push_back(cuts_);
      return;
    }
    const int given = given_[step];
    if (given != kFree) {
      if (given == kReplicated || MayCut(given, parts_[step])) Take(step, given);
      return;
    }
    const size_t before = found_.size();
    for (const bool evenly : {true, false}) {
      const bool are_all = found_.size() == before;
      for (int candidate : candidates_) {
        if (extents_.CanCut(candidate, parts_[step]) &&
            extents_.CutsEvenly(candidate, parts_[step]) == evenly &&
            (evenly || are_all || extents_.MayBeUneven(candidate))) {
          Take(step, candidate);
        }
      }
    }
    const bool is_whole = found_.size() == before || whole_ == WholeStep::kAlways;
    for (int candidate : terms_) Take(step, candidate);
    if (is_whole) Take(step, kReplicated);
  }

  CutExtents extents_;
  std::vector<int> candidates_;  // without those that leave terms
  std::vector<int> terms_;
  const Cuts& given_;
  const std::vector<int>& parts_;
  const WholeStep whole_;
  const size_t limit_;
  Cuts cuts_;
  bool complete_ = true;
  bool whole_as_given_ = false;
  bool may_be_uneven_ = false;
  std::vector<Cuts> found_;
};

}  // namespace

bool CutExtents::CanCut(int dim, int parts) const {
  if (MakesTerms(dim)) return true;
  return tofu::CanCut(left(dim), parts) && (!equal_parts_ || left(dim) % parts == 0);
}

bool CutExtents::CutsEvenly(int dim, int parts) const {
  if (MakesTerms(dim)) return true;
  return CanCut(dim, parts) && tofu::CutsEvenly(extents_[dim], parts_[dim] * parts);
}

std::vector<int> CutExtents::Choices(const std::vector<int>& candidates,
                                     int parts) const {
  std::vector<int> possible;
  std::vector<int> wanted;
  bool cuts_evenly = false;
  for (int candidate : candidates) {
    if (MakesTerms(candidate) || !CanCut(candidate, parts)) continue;
    const bool is_even = CutsEvenly(candidate, parts);
    cuts_evenly = cuts_evenly || is_even;
    possible.push_back(candidate);
    if (is_even || MayBeUneven(candidate)) wanted.push_back(candidate);
  }
  return cuts_evenly ? wanted : possible;
}

std::vector<Cuts> EnumerateCuts(CutExtents extents, const std::vector<int>& candidates,
                                const Cuts& given, const std::vector<int>& parts,
                                WholeStep whole, size_t limit, bool* complete) {
  return Enumerator(std::move(extents), candidates, given, parts, whole, limit)
      .Run(complete);
}

}  // namespace tofu
