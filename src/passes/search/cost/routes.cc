#include "passes/search/cost/routes.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

namespace tofu {
namespace {

// The steps whose workers need the same region. Empty unless all regions have about the
// same extents, as tiles of one tensor do: only then are their pieces alike.
std::vector<int> SharedSteps(const GroupBoxes& needed) {
  StepSet differ = needed.first_only;
  if (differ != 0) return {};
  for (const Intervals& dim : needed.dims) {
    differ |= dim.steps;
  }
  const Shape longest = LongestSides(needed);
  const Shape shortest = ShortestSides(needed);
  for (size_t d = 0; d < longest.size(); ++d) {
    if (longest[d] - shortest[d] > 1 || shortest[d] < 1) return {};
  }
  std::vector<int> shared;
  for (size_t step = 0; step < needed.parts.size(); ++step) {
    if (!HasStep(differ, step)) shared.push_back(static_cast<int>(step));
  }
  return shared;
}

// The stops after each level, whose pieces the steps up to it divide, beginning with each
// dimension in turn.
std::vector<TileSplits> StopsOver(const GroupBoxes& regions,
                                  const std::vector<int>& steps,
                                  const std::vector<int>& levels) {
  const auto level_of = [&](size_t i) { return levels[static_cast<size_t>(steps[i])]; };
  std::vector<TileSplits> stops;
  for (size_t first = 0; first < regions.dims.size(); ++first) {
    Shape extents = ShortestSides(regions);
    TileSplits splits;
    for (size_t i = 0; i < steps.size(); ++i) {
      const size_t step = static_cast<size_t>(steps[i]);
      const int parts = regions.parts[step];
      const int dim = DimensionToSplit(first, parts, extents);
      if (dim >= 0) {
        extents[dim] /= parts;
        splits.push_back({steps[i], dim});
      }
      const bool ends_level = i + 1 == steps.size() || level_of(i + 1) != level_of(i);
      if (ends_level && !splits.empty() &&
          std::find(stops.begin(), stops.end(), splits) == stops.end()) {
        stops.push_back(splits);
      }
    }
  }
  return stops;
}

template <typename Predicate>
void RemoveIf(std::vector<int>* steps, Predicate predicate) {
  steps->erase(std::remove_if(steps->begin(), steps->end(), predicate), steps->end());
}

bool HasOneLevel(const std::vector<int>& levels) {
  return levels.empty() || levels.front() == levels.back();
}

}  // namespace

std::vector<TileSplits> RouteStops(const GroupBoxes& needed,
                                   const std::vector<int>& levels) {
  if (HasOneLevel(levels)) return {};
  std::vector<int> steps = SharedSteps(needed);
  const auto level_of = [&](int step) { return levels[static_cast<size_t>(step)]; };
  // Steps over the slowest link make no stop: gathering would cross that link again.
  RemoveIf(&steps, [&](int step) { return level_of(step) == levels.front(); });
  std::stable_sort(steps.begin(), steps.end(),
                   [&](int a, int b) { return level_of(a) < level_of(b); });
  return StopsOver(needed, steps, levels);
}

std::vector<TileSplits> PartialStops(const GroupBoxes& made, StepSet reduces,
                                     const std::vector<int>& levels) {
  if (HasOneLevel(levels)) return {};
  std::vector<int> steps = SharedSteps(made);
  const auto level_of = [&](int step) { return levels[static_cast<size_t>(step)]; };
  RemoveIf(&steps, [&](int step) { return !HasStep(reduces, step); });
  int highest = 0;
  for (int step : steps) highest = std::max(highest, level_of(step));
  RemoveIf(&steps, [&](int step) { return level_of(step) == highest; });
  std::stable_sort(steps.begin(), steps.end(),
                   [&](int a, int b) { return level_of(a) < level_of(b); });
  return StopsOver(made, steps, levels);
}

std::vector<TileSplits> OutputStops(const GroupBoxes& tiles, StepSet reduces,
                                    const std::vector<int>& levels) {
  if (HasOneLevel(levels)) return {};
  std::vector<int> steps = SharedSteps(tiles);
  const auto order = [&](int step) {
    return std::pair(levels[static_cast<size_t>(step)], HasStep(reduces, step));
  };
  std::stable_sort(steps.begin(), steps.end(),
                   [&](int a, int b) { return order(a) < order(b); });
  return StopsOver(tiles, steps, levels);
}

bool MayGather(const TileSplits& from, const TileSplits& to) {
  return to.size() < from.size() && std::equal(to.begin(), to.end(), from.begin());
}

std::vector<int> CheapestWay(int states, const MoveCost& cost) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  using Reached = std::tuple<double, int>;  // cost, moves
  const size_t size = static_cast<size_t>(states);
  std::vector<Reached> reached(size, {kNone, 0});
  std::vector<int> before(size, -1);
  std::vector<bool> is_done(size, false);
  reached[0] = {0, 0};
  while (true) {
    int at = -1;
    for (int state = 0; state < states; ++state) {
      if (is_done[state] || std::get<0>(reached[state]) == kNone) continue;
      if (at < 0 || reached[state] < reached[at]) at = state;
    }
    if (at < 0 || at == states - 1) break;
    is_done[at] = true;
    for (int to = 1; to < states; ++to) {
      if (is_done[to]) continue;
      const Reached next = {std::get<0>(reached[at]) + cost(at, to),
                            std::get<1>(reached[at]) + 1};
      if (!(next < reached[to])) continue;
      reached[to] = next;
      before[to] = at;
    }
  }
  std::vector<int> way;
  for (int at = states - 1; before[at] >= 0; at = before[at]) way.push_back(at);
  std::reverse(way.begin(), way.end());
  return way;
}

}  // namespace tofu
