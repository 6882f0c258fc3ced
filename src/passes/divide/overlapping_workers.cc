#include "passes/divide/overlapping_workers.h"

#include <utility>

namespace tofu {
namespace {

class Walk {
 public:
  Walk(const GroupBoxes& boxes, const Box& region, std::vector<int> digits, size_t most)
      : boxes_(boxes),
        region_(region),
        most_(most),
        digits_(std::move(digits)),
        box_(region) {}

  std::vector<FetchSource> Run() {
    for (size_t step = 0; step < digits_.size(); ++step) {
      if (!HasStep(boxes_.first_only, step)) continue;
      if (digits_[step] > 0) return {};
      digits_[step] = 0;
    }
    Along(0, 0, 0);
    return std::move(found_);
  }

 private:
  // Continues with the digits of the steps from `step` on along a dimension, of which the
  // earlier ones make `index`.
  void Along(size_t dim, size_t step, size_t index) {
    if (dim == boxes_.dims.size()) return Rest(0);
    const Intervals& side = boxes_.dims[dim];
    while (step < digits_.size() && !HasStep(side.steps, step)) ++step;
    if (step == digits_.size()) return Take(dim, index);
    ForDigits(step, [&](int digit) {
      Along(dim, step + 1,
            index * static_cast<size_t>(boxes_.parts[step]) + static_cast<size_t>(digit));
    });
  }

  void Take(size_t dim, size_t index) {
    const Intervals& side = boxes_.dims[dim];
    const int64_t begin = side.begin[index];
    const int64_t end = side.end[index];
    if (begin >= end || begin >= region_.end[dim] || end <= region_.begin[dim]) return;
    box_.begin[dim] = begin;
    box_.end[dim] = end;
    Along(dim + 1, 0, 0);
  }

  // Continues with the digits that do not change the box.
  void Rest(size_t step) {
    if (step < digits_.size()) {
      return ForDigits(step, [&](int) { Rest(step + 1); });
    }
    int worker = 0;
    for (size_t i = 0; i < digits_.size(); ++i) {
      worker = worker * boxes_.parts[i] + digits_[i];
    }
    found_.push_back({worker, box_});
  }

  template <typename Visit>
  void ForDigits(size_t step, Visit visit) {
    if (digits_[step] != kAnyDigit) return visit(digits_[step]);
    for (int digit = 0; digit < boxes_.parts[step] && found_.size() < most_; ++digit) {
      digits_[step] = digit;
      visit(digit);
    }
    digits_[step] = kAnyDigit;
  }

  const GroupBoxes& boxes_;
  const Box& region_;
  const size_t most_;
  std::vector<int> digits_;
  Box box_;
  std::vector<FetchSource> found_;
};

}  // namespace

std::vector<FetchSource> OverlappingWorkers(const GroupBoxes& boxes, const Box& region,
                                            const std::vector<int>& digits, size_t most) {
  return Walk(boxes, region, digits, most).Run();
}

Box BoxAt(const GroupBoxes& boxes, const std::vector<int>& digits) {
  Box box;
  bool has_box = true;
  for (size_t step = 0; step < digits.size(); ++step) {
    if (HasStep(boxes.first_only, step) && digits[step] != 0) has_box = false;
  }
  for (const Intervals& side : boxes.dims) {
    size_t index = 0;
    for (size_t step = 0; step < digits.size(); ++step) {
      if (!HasStep(side.steps, step)) continue;
      index = index * static_cast<size_t>(boxes.parts[step]) +
              static_cast<size_t>(digits[step]);
    }
    box.begin.push_back(side.begin[index]);
    box.end.push_back(has_box ? side.end[index] : side.begin[index]);
  }
  return box;
}

StepSet StepsOf(const GroupBoxes& boxes) {
  StepSet steps = 0;
  for (const Intervals& side : boxes.dims) steps |= side.steps;
  return steps;
}

}  // namespace tofu
