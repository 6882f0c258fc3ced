#include "graph/cuts.h"

#include "graph/box.h"

namespace tofu {
namespace {

class Enumerator {
 public:
  Enumerator(const std::vector<int64_t>& extents, const std::vector<int>& candidates,
             const Cuts& given, const std::vector<int>& parts, WholeStep whole,
             size_t limit)
      : extents_(extents),
        candidates_(candidates),
        given_(given),
        parts_(parts),
        whole_(whole),
        limit_(limit),
        cuts_(given.size(), kReplicated) {}

  std::vector<Cuts> Run(bool* complete) {
    Step(0);
    *complete = complete_;
    return std::move(found_);
  }

 private:
  bool Divides(size_t step, int candidate) const {
    return CanCut(extents_[candidate], parts_[step]);
  }

  void Take(size_t step, int candidate) {
    cuts_[step] = candidate;
    if (candidate == kReplicated) return Step(step + 1);
    extents_[candidate] /= parts_[step];
    Step(step + 1);
    extents_[candidate] *= parts_[step];
  }

  void Step(size_t step) {
    if (!complete_) return;
    if (step == given_.size()) {
      complete_ = found_.size() < limit_;
      if (complete_) found_.push_back(cuts_);
      return;
    }
    const int given = given_[step];
    if (given != kFree) {
      if (given == kReplicated || Divides(step, given)) Take(step, given);
      return;
    }
    const size_t before = found_.size();
    for (int candidate : candidates_) {
      if (Divides(step, candidate)) Take(step, candidate);
    }
    if (found_.size() == before || whole_ == WholeStep::kAlways) Take(step, kReplicated);
  }

  std::vector<int64_t> extents_;
  const std::vector<int>& candidates_;
  const Cuts& given_;
  const std::vector<int>& parts_;
  const WholeStep whole_;
  const size_t limit_;
  Cuts cuts_;
  bool complete_ = true;
  std::vector<Cuts> found_;
};

}  // namespace

std::vector<Cuts> EnumerateCuts(const std::vector<int64_t>& extents,
                                const std::vector<int>& candidates, const Cuts& given,
                                const std::vector<int>& parts, WholeStep whole,
                                size_t limit, bool* complete) {
  return Enumerator(extents, candidates, given, parts, whole, limit).Run(complete);
}

}  // namespace tofu
