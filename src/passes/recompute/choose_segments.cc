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

// Every place, or the narrowest place of each of kMostCuts equal pieces of the row. Of
// places that equally many bytes cross, the first one ends a layer sooner.
std::vector<int> Cuts(const ForwardRow& row) {
  const auto end = static_cast<int64_t>(row.operators.size());
  const int64_t pieces = std::min<int64_t>(end - 1, kMostCuts);
  const std::vector<int64_t> crossing = CrossingBytes(row);
  std::vector<int> cuts = {0};
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const auto first = crossing.begin() + 1 + piece * (end - 1) / pieces;
    const auto last = crossing.begin() + 1 + (piece + 1) * (end - 1) / pieces;
    cuts.push_back(static_cast<int>(std::min_element(first, last) - crossing.begin()));
  }
  cuts.push_back(static_cast<int>(end));
  return cuts;
}

// Reads a segment's operators from its end to its begin.
class Reading {
 public:
  Reading(const ForwardRow& row, int end, bool runs_again)
      : row_(row),
        end_(end),
        runs_again_(runs_again),
        is_read_(row.tensors.size(), false) {}

  // Counts the operator before those that were read; true if it runs again.
  bool Read(int op) {
    const ForwardRow::Operator& o = row_.operators[op];
    const bool again =
        runs_again_ && !o.fixed && !o.writes.empty() && IsMissing(o.writes.front());
    for (int tensor : o.writes) {
      const ForwardRow::Tensor& t = row_.tensors[tensor];
      const bool kept = t.last_reader >= end_ || (!again && IsNeeded(tensor));
      if (kept && !t.resident) needs.kept_bytes += t.bytes;
    }
    if (!again) return false;
    needs.cost += o.cost;
    for (int tensor : o.writes) needs.again_bytes += row_.tensors[tensor].bytes;
    for (int tensor : o.reads) is_read_[tensor] = true;
    return true;
  }

  SegmentNeeds needs;

 private:
  bool IsNeeded(int tensor) const {
    return row_.tensors[tensor].saved || is_read_[tensor];
  }

  // Whether a needed tensor is not there when the backward pass arrives.
  bool IsMissing(int tensor) const {
    const ForwardRow::Tensor& t = row_.tensors[tensor];
    return IsNeeded(tensor) && !t.resident && t.last_reader < end_;
  }

  const ForwardRow& row_;
  const int end_;
  const bool runs_again_;
  std::vector<bool> is_read_;  // [tensor]: an operator that runs again reads it
};

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
    for (size_t j = 1; j < cuts_.size(); ++j) stretches_[j] = StretchesBefore(j);
  }

  // The fewest bytes of any choice; `high` is enough for one.
  int64_t FewestBytes(int64_t high) const {
    for (int64_t low = 0; low < high;) {
      const int64_t middle = low + (high - low) / 2;
      if (IsEnough(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return high;
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
  // [begin]: the stretches that end at cut j.
  std::vector<Stretch> StretchesBefore(size_t j) const {
    std::vector<Stretch> stretches(j);
    Reading kept(row_, cuts_[j], false);
    Reading again(row_, cuts_[j], true);
    int op = cuts_[j];
    for (size_t i = j; i-- > 0;) {
      while (op > cuts_[i]) {
        --op;
        kept.Read(op);
        again.Read(op);
      }
      const SegmentNeeds& needs = again.needs;
      stretches[i] = {{kept.needs.kept_bytes, needs.kept_bytes},
                      needs.again_bytes,
                      needs.cost,
                      needs.kept_bytes < kept.needs.kept_bytes};
    }
    return stretches;
  }

  // Whether a choice stays within a limit: F with its first pair alone.
  bool IsEnough(int64_t limit_bytes) const {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    std::vector<int64_t> kept(cuts_.size(), kNone);
    kept[0] = 0;
    for (size_t j = 1; j < cuts_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (kept[i] == kNone) continue;
        const Stretch& stretch = stretches_[j][i];
        for (const bool again : {false, true}) {
          if (again && !stretch.helps) continue;
          const int64_t stays = kept[i] + stretch.kept_bytes[again ? 1 : 0];
          if (stays + (again ? stretch.again_bytes : 0) > limit_bytes) continue;
          kept[j] = std::min(kept[j], stays);
        }
      }
    }
    return kept.back() != kNone;
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
  Reading reading(row, segment.end, runs_again);
  for (int op = segment.end - 1; op >= segment.begin; --op) {
    if (reading.Read(op)) reading.needs.again.push_back(op);
  }
  std::reverse(reading.needs.again.begin(), reading.needs.again.end());
  return std::move(reading.needs);
}

int64_t SavedBytes(const ForwardRow& row) {
  return NeedsOf(row, {0, static_cast<int>(row.operators.size())}, false).kept_bytes;
}

SegmentChoice ChooseSegments(const ForwardRow& row, int64_t limit_bytes) {
  if (row.operators.empty()) return {};
  const Chooser chooser(row);
  if (limit_bytes > 0) {
    std::optional<SegmentChoice> choice = chooser.Within(limit_bytes);
    if (choice) return *std::move(choice);
  }
  return *chooser.Within(chooser.FewestBytes(SavedBytes(row)));
}

}  // namespace tofu
