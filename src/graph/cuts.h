// Holds the decisions for the steps of a plan, and enumerates the ways to cut a tensor,
// or to split an operator, in these steps.
#ifndef TOFU_GRAPH_CUTS_H_
#define TOFU_GRAPH_CUTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/box.h"
#include "graph/graph.h"
#include "graph/strategy_table.h"

namespace tofu {

// One decision per step: a dimension of a tensor, a variable of an operator,
// kReplicated or kTerms. A search handles many of them, so this type does not allocate.
class Cuts {
 public:
  static constexpr size_t kMaxSteps = 15;  // steps of at least two parts: 2^14 workers

  Cuts() = default;
  Cuts(size_t steps, int cut) { assign(steps, cut); }
  Cuts(std::initializer_list<int> cuts) : Cuts(cuts.begin(), cuts.end()) {}
  Cuts(const std::vector<int>& cuts)  // NOLINT: as plans hold them
      : Cuts(cuts.begin(), cuts.end()) {}
  template <typename Iterator,
            typename = typename std::iterator_traits<Iterator>::iterator_category>
  Cuts(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  operator std::vector<int>() const { return {begin(), end()}; }  // NOLINT: as above

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int* begin() const { return cuts_.data(); }
  const int* end() const { return cuts_.data() + size_; }
  int* begin() { return cuts_.data(); }
  int* end() { return cuts_.data() + size_; }
  int operator[](size_t step) const { return cuts_[step]; }
  int& operator[](size_t step) { return cuts_[step]; }
  int back() const { return cuts_[size_ - 1]; }

  void push_back(int cut) {
    TOFU_CHECK(size_ < kMaxSteps) << "cuts of more than " << kMaxSteps << " steps";
    cuts_[size_++] = cut;
  }
  void resize(size_t steps) {
    TOFU_CHECK(steps <= size_) << size_ << " cuts cannot become " << steps;
    size_ = static_cast<uint32_t>(steps);
  }
  void assign(size_t steps, int cut) {
    for (size_ = 0; size_ < steps;) push_back(cut);
  }

  friend bool operator==(const Cuts& a, const Cuts& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i) {
      if (a.cuts_[i] != b.cuts_[i]) return false;
    }
    return true;
  }
  friend bool operator!=(const Cuts& a, const Cuts& b) { return !(a == b); }

 private:
  uint32_t size_ = 0;
  std::array<int, kMaxSteps> cuts_ = {};
};

constexpr int kFree = -2;  // a step that is still to be decided

// The condition under which a step may leave a tensor or an operator whole. A dimension
// that a later step must cut, but could not after this one, counts as one that cannot be
// cut.
enum class WholeStep { kOnlyWhenNothingCanBeCut, kAlways };

// Extents, and the number of parts into which the steps so far cut each. `equal_parts`:
// whether all parts must have the same size. `uneven`: a dimension that a step may cut
// unevenly although it could cut another one evenly; -1: none.
class CutExtents {
 public:
  explicit CutExtents(Shape extents, bool equal_parts = false, int uneven = -1)
      : extents_(std::move(extents)),
        parts_(extents_.size(), 1),
        equal_parts_(equal_parts),
        uneven_(uneven) {}

  // The extent of the smallest piece.
  int64_t left(int dim) const { return extents_[dim] / parts_[dim]; }
  // Whether one more step of `parts` parts leaves every part an element.
  bool CanCut(int dim, int parts) const;
  // Whether the pieces then have about the same size (box.h).
  bool CutsEvenly(int dim, int parts) const;
  bool MayBeUneven(int dim) const { return dim == uneven_; }
  void Cut(int dim, int parts) {
    if (dim != kTerms) parts_[dim] *= parts;
  }
  void Undo(int dim, int parts) {
    if (dim != kTerms) parts_[dim] /= parts;
  }
  // Whether the cut leaves terms: kTerms, or the variable that numbers them.
  bool MakesTerms(int dim) const {
    return dim == kTerms || extents_[dim] == kTermsExtent;
  }

  // The dimensions that a search considers for one more step: the candidates that it cuts
  // evenly, or may cut unevenly; if it cuts none evenly, those that it can cut. Cuts that
  // leave terms are none of them.
  std::vector<int> Choices(const std::vector<int>& candidates, int parts) const;

 private:
  Shape extents_;
  Shape parts_;
  bool equal_parts_;
  int uneven_;
};

// Returns every way to fill the free steps of `given` from `candidates`, in lexicographic
// order of the candidates (kReplicated last). A step takes a candidate that it cuts
// unevenly only if it may, or if no candidate that it cuts evenly can be completed; those
// that leave terms do not count for that. The decisions in `given` must stay possible;
// they stay even, and whole only where nothing else could be cut, unless no way meets
// this. If there are more than `limit` ways, returns only some of them and sets *complete
// to false.
std::vector<Cuts> EnumerateCuts(CutExtents extents, const std::vector<int>& candidates,
                                const Cuts& given, const std::vector<int>& parts,
                                WholeStep whole, size_t limit, bool* complete);

}  // namespace tofu

#endif  // TOFU_GRAPH_CUTS_H_
