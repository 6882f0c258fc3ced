#include "passes/recompute/choose_segments.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace tofu {
namespace {

// One choice of the segments before a cut, and the choice that it extends.
struct Partial {
  int64_t kept_bytes = 0;
  int64_t cost = 0;
  int64_t peak_bytes = 0;
  int from_cut = -1;
  int from_choice = -1;
  bool again = false;
};

struct Stretch {
  int64_t kept_bytes[2] = {0, 0};  // [runs again]
  int64_t again_bytes = 0;
  int64_t cost = 0;
  bool helps = false;
};

// [place]: the bytes of tensors that operators before it wrote and operators behind it
// read.
std::vector<int64_t> CrossingBytes(const ForwardRow& row) {
  std::vector<int64_t> change(row.operators.size() + 2, 0);
  for (const ForwardRow::Tensor& tensor : row.tensors) {
    if (tensor.resident || tensor.last_reader <= tensor.writer) continue;
    change[tensor.writer + 1] += tensor.bytes;
    change[tensor.last_reader + 1] -= tensor.bytes;
  }
  for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

std::vector<int> Cuts(const ForwardRow& row) {
  const int end = static_cast<int>(row.operators.size());
  std::vector<int> inner;
  for (int place = 1; place < end; ++place) inner.push_back(place);
  if (static_cast<int>(inner.size()) > kMostCuts) {
    const std::vector<int64_t> crossing = CrossingBytes(row);
    // Places that equally many bytes cross stay in order: the first one ends a layer
    // sooner.
    std::stable_sort(inner.begin(), inner.end(),
                     [&](int a, int b) { return crossing[a] < crossing[b]; });
    const int64_t most = crossing[inner[kMostCuts]];
    std::vector<int> chosen;
    std::vector<int> equal;
    for (int place : inner) {
      if (crossing[place] < most) chosen.push_back(place);
      if (crossing[place] == most) equal.push_back(place);
    }
    // Takes the last cuts at even distances from the places that tie for them.
    const size_t left = kMostCuts - chosen.size();
    for (size_t i = 0; i < left; ++i) chosen.push_back(equal[i * equal.size() / left]);
    inner = std::move(chosen);
    std::sort(inner.begin(), inner.end());
  }
  inner.insert(inner.begin(), 0);
  inner.push_back(end);
  return inner;
}

// Keeps the choices that no other choice beats, by ascending bytes.
void Thin(std::vector<Partial>* choices) {
  std::sort(choices->begin(), choices->end(), [](const Partial& a, const Partial& b) {
    return std::pair(a.kept_bytes, a.cost) < std::pair(b.kept_bytes, b.cost);
  });
  std::vector<Partial> best;
  for (const Partial& choice : *choices) {
    if (best.empty() || choice.cost < best.back().cost) best.push_back(choice);
  }
  if (best.size() > kMostChoices) {
    std::vector<Partial> some;
    for (size_t i = 0; i < kMostChoices; ++i) {
      some.push_back(best[i * (best.size() - 1) / (kMostChoices - 1)]);
    }
    best = std::move(some);
  }
  *choices = std::move(best);
}

class Chooser {
 public:
  explicit Chooser(const ForwardRow& row)
      : row_(row), cuts_(Cuts(row)), stretches_(cuts_.size()) {
    for (size_t j = 1; j < cuts_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) stretches_[j].push_back(StretchOf(i, j));
    }
  }

  // The cheapest choice within a limit; empty if there is none.
  std::optional<SegmentChoice> Within(int64_t limit_bytes) const {
    std::vector<std::vector<Partial>> choices(cuts_.size());
    choices[0].push_back({});
    for (size_t j = 1; j < cuts_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        for (size_t c = 0; c < choices[i].size(); ++c) {
          for (bool again : {false, true}) {
            Extend(choices[i][c], i, c, j, again, limit_bytes, &choices[j]);
          }
        }
      }
      Thin(&choices[j]);
    }
    const std::vector<Partial>& last = choices.back();
    if (last.empty()) return std::nullopt;
    const auto best =
        std::min_element(last.begin(), last.end(), [](const auto& a, const auto& b) {
          return std::pair(a.cost, a.kept_bytes) < std::pair(b.cost, b.kept_bytes);
        });
    return Traced(choices, *best);
  }

 private:
  Stretch StretchOf(size_t i, size_t j) const {
    const Segment segment{cuts_[i], cuts_[j]};
    const SegmentNeeds kept = NeedsOf(row_, segment, false);
    const SegmentNeeds again = NeedsOf(row_, segment, true);
    return {{kept.kept_bytes, again.kept_bytes},
            again.again_bytes,
            again.cost,
            again.kept_bytes < kept.kept_bytes};
  }

  void Extend(const Partial& before, size_t i, size_t choice, size_t j, bool again,
              int64_t limit_bytes, std::vector<Partial>* choices) const {
    const Stretch& stretch = stretches_[j][i];
    if (again && !stretch.helps) return;
    Partial next;
    next.kept_bytes = before.kept_bytes + stretch.kept_bytes[again ? 1 : 0];
    next.cost = before.cost + (again ? stretch.cost : 0);
    const int64_t needed = next.kept_bytes + (again ? stretch.again_bytes : 0);
    next.peak_bytes = std::max(before.peak_bytes, needed);
    next.from_cut = static_cast<int>(i);
    next.from_choice = static_cast<int>(choice);
    next.again = again;
    if (next.peak_bytes <= limit_bytes) choices->push_back(next);
  }

  SegmentChoice Traced(const std::vector<std::vector<Partial>>& choices,
                       const Partial& last) const {
    SegmentChoice choice;
    choice.bytes = last.peak_bytes;
    choice.kept_bytes = last.kept_bytes;
    choice.cost = last.cost;
    int cut = static_cast<int>(cuts_.size()) - 1;
    for (Partial at = last; at.from_cut >= 0;) {
      if (at.again) choice.segments.push_back({cuts_[at.from_cut], cuts_[cut]});
      cut = at.from_cut;
      at = choices[cut][at.from_choice];
    }
    std::reverse(choice.segments.begin(), choice.segments.end());
    return choice;
  }

  const ForwardRow& row_;
  std::vector<int> cuts_;
  std::vector<std::vector<Stretch>> stretches_;  // [end][begin]
};

}  // namespace

SegmentNeeds NeedsOf(const ForwardRow& row, Segment segment, bool runs_again) {
  SegmentNeeds needs;
  std::vector<bool> kept(row.tensors.size(), false);
  std::vector<bool> is_read(row.tensors.size(), false);
  for (int op = segment.end - 1; op >= segment.begin; --op) {
    const ForwardRow::Operator& o = row.operators[op];
    bool again = false;
    for (int tensor : o.writes) {
      const ForwardRow::Tensor& t = row.tensors[tensor];
      if (t.resident) continue;
      const bool needed = t.saved || is_read[tensor];
      kept[tensor] = t.last_reader >= segment.end || (needed && (!runs_again || o.fixed));
      if (kept[tensor]) needs.kept_bytes += t.bytes;
      again = again || (needed && !kept[tensor]);
    }
    if (!again) continue;
    needs.again.push_back(op);
    needs.cost += o.cost;
    for (int tensor : o.writes) needs.again_bytes += row.tensors[tensor].bytes;
    for (int tensor : o.reads) is_read[tensor] = true;
  }
  std::reverse(needs.again.begin(), needs.again.end());
  return needs;
}

int64_t SavedBytes(const ForwardRow& row) {
  return NeedsOf(row, {0, static_cast<int>(row.operators.size())}, false).kept_bytes;
}

SegmentChoice ChooseSegments(const ForwardRow& row, int64_t limit_bytes) {
  if (row.operators.empty()) return {};
  const Chooser chooser(row);
  int64_t high = SavedBytes(row);
  if (limit_bytes > 0) {
    std::optional<SegmentChoice> choice = chooser.Within(limit_bytes);
    if (choice) return *std::move(choice);
  }
  SegmentChoice best = *chooser.Within(high);
  high = best.bytes;
  for (int64_t low = 0; low < high;) {
    const int64_t middle = low + (high - low) / 2;
    std::optional<SegmentChoice> choice = chooser.Within(middle);
    if (choice) {
      best = *std::move(choice);
      high = best.bytes;
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace tofu
