#include "solver/problem/split_core.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/union_find.h"

namespace tofu {
namespace {

using Segment = ChoiceProblem::Segment;

bool SameSegment(const Segment& a, const Segment& b) {
  return a.begin == b.begin && a.end == b.end && a.bytes == b.bytes;
}

bool SamePair(const ChoiceProblem::Pair& a, const ChoiceProblem::Pair& b) {
  return a.a == b.a && a.b == b.b && a.cost == b.cost;
}

int64_t NumValues(const CorePart& part) {
  return std::accumulate(part.core.domain.begin(), part.core.domain.end(), int64_t{0});
}

}  // namespace

bool AreEqual(const ChoiceProblem& a, const ChoiceProblem& b) {
  if (a.constant != b.constant || a.domain != b.domain || a.unary != b.unary ||
      a.capacity != b.capacity) {
    return false;
  }
  if (!std::equal(a.pairs.begin(), a.pairs.end(), b.pairs.begin(), b.pairs.end(),
                  SamePair)) {
    return false;
  }
  return std::equal(
      a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
      [](const std::vector<Segment>& c, const std::vector<Segment>& d) {
        return std::equal(c.begin(), c.end(), d.begin(), d.end(), SameSegment);
      });
}

std::vector<CorePart> SplitCore(const ChoiceProblem& core) {
  const int count = core.num_variables();
  const int num_moments = static_cast<int>(core.capacity.size());
  UnionFind sets(count + num_moments);
  for (const ChoiceProblem::Pair& pair : core.pairs) sets.Merge(pair.a, pair.b);
  for (int v = 0; v < count; ++v) {
    for (const Segment& segment : core.segments[v]) {
      for (int t = segment.begin; t < segment.end; ++t) sets.Merge(v, count + t);
    }
  }
  std::vector<int> part_of(count + num_moments, -1);
  std::vector<CorePart> parts;
  std::vector<int> number(count + num_moments);  // within the part
  for (int i = 0; i < count + num_moments; ++i) {
    int& part = part_of[sets.Find(i)];
    if (part < 0) {
      part = static_cast<int>(parts.size());
      parts.emplace_back();
    }
    ChoiceProblem& own = parts[part].core;
    if (i >= count) {
      number[i] = static_cast<int>(own.capacity.size());
      own.capacity.push_back(core.capacity[i - count]);
      continue;
    }
    number[i] = own.num_variables();
    own.domain.push_back(core.domain[i]);
    own.unary.push_back(core.unary[i]);
    own.segments.push_back(core.segments[i]);
    parts[part].variables.push_back(i);
  }
  for (const ChoiceProblem::Pair& pair : core.pairs) {
    parts[part_of[sets.Find(pair.a)]].core.pairs.push_back(
        {number[pair.a], number[pair.b], pair.cost});
  }
  for (CorePart& part : parts) {
    for (std::vector<Segment>& segments : part.core.segments) {
      for (Segment& segment : segments) {
        // All its moments belong to this part, so they are still consecutive.
        const int length = segment.end - segment.begin;
        segment.begin = number[count + segment.begin];
        segment.end = segment.begin + length;
      }
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const CorePart& a, const CorePart& b) {
    return std::pair(NumValues(a), a.core.unary) < std::pair(NumValues(b), b.core.unary);
  });
  return parts;
}

}  // namespace tofu
