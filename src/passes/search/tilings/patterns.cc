#include "passes/search/tilings/patterns.h"

#include <algorithm>
#include <utility>

#include "graph/box.h"

namespace tofu {
namespace {

// Orders cuts ascending; kTerms and kReplicated, which are negative, come last.
bool IsBefore(int a, int b) {
  return static_cast<unsigned>(a) < static_cast<unsigned>(b);
}

bool Precedes(const Cuts& a, const Cuts& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), IsBefore);
}

void SortUnique(std::vector<Cuts>* all) {
  std::sort(all->begin(), all->end(), Precedes);
  all->erase(std::unique(all->begin(), all->end()), all->end());
}

// Whether two steps and all between them have equal parts.
bool MayTrade(size_t a, size_t b, const std::vector<int>& parts) {
  for (size_t i = std::min(a, b); i < std::max(a, b); ++i) {
    if (parts[i] != parts[i + 1]) return false;
  }
  return true;
}

// Whether the steps with a decision come first: then steps can be decided in turn,
// without looking ahead.
bool AreFirstStepsGiven(const Cuts& given) {
  return std::is_sorted(given.begin(), given.end(),
                        [](int a, int b) { return a != kFree && b == kFree; });
}

// Whether `cuts` of the first steps may begin cuts of this profile.
bool MayBecome(const Cuts& cuts, const Cuts& profile, const std::vector<int>& parts) {
  std::array<bool, Cuts::kMaxSteps> used = {};
  for (size_t i = 0; i < cuts.size(); ++i) {
    size_t at = 0;
    while (at < profile.size() &&
           (used[at] || !MayTrade(i, at, parts) || profile[at] != cuts[i])) {
      ++at;
    }
    if (at == profile.size()) return false;
    used[at] = true;
  }
  return true;
}

bool IsWanted(const Cuts& cuts, const PatternOptions& options) {
  const std::vector<Cuts>& profiles = options.profiles;
  return profiles.empty() ||
         std::any_of(profiles.begin(), profiles.end(), [&](const Cuts& profile) {
           return MayBecome(cuts, profile, options.parts);
         });
}

std::vector<Cuts> PatternsOf(const std::vector<Cuts>& all,
                             const PatternOptions& options) {
  std::vector<Cuts> patterns;
  for (const Cuts& cuts : all) {
    if (!IsWanted(cuts, options)) continue;
    patterns.push_back(PatternOf(cuts, options.parts, options.ordered));
  }
  SortUnique(&patterns);
  return patterns;
}

// The cuts possible at the step after those of `first`.
std::vector<int> Possible(CutExtents extents, const std::vector<int>& candidates,
                          const Cuts& first, const std::vector<int>& parts,
                          bool may_be_whole) {
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] != kReplicated) extents.Cut(first[i], parts[i]);
  }
  std::vector<int> possible = extents.Choices(candidates, parts[first.size()]);
  if (possible.empty() || may_be_whole) possible.push_back(kReplicated);
  for (int candidate : candidates) {
    if (extents.MakesTerms(candidate)) possible.push_back(candidate);
  }
  return possible;
}

// Extends patterns step after step; given cuts must be possible.
std::vector<Cuts> Enumerate(const CutExtents& extents, const std::vector<int>& candidates,
                            const Cuts& given, bool may_be_whole,
                            const PatternOptions& options, bool* complete) {
  std::vector<Cuts> patterns(1);
  for (size_t step = 0; step < given.size() && *complete; ++step) {
    std::vector<Cuts> longer;
    for (const Cuts& pattern : patterns) {
      std::vector<int> possible = {given[step]};
      if (given[step] == kFree) {
        possible = Possible(extents, candidates, pattern, options.parts, may_be_whole);
      }
      for (int cut : possible) {
        Cuts next = pattern;
        next.push_back(cut);
        if (!IsWanted(next, options)) continue;
        longer.push_back(PatternOf(next, options.parts, options.ordered));
      }
    }
    SortUnique(&longer);
    patterns = std::move(longer);
    *complete = patterns.size() < options.limit;
  }
  return patterns;
}

}  // namespace

Cuts PatternOf(Cuts cuts, const std::vector<int>& parts, size_t ordered) {
  for (size_t first = ordered; first < cuts.size();) {
    size_t last = first + 1;
    while (last < cuts.size() && parts[last] == parts[first]) ++last;
    std::sort(cuts.begin() + first, cuts.begin() + last, IsBefore);
    first = last;
  }
  return cuts;
}

bool HasOneOrder(const Cuts& profile, const std::vector<int>& parts) {
  for (size_t i = 0; i < profile.size(); ++i) {
    for (size_t j = i + 1; j < profile.size(); ++j) {
      if (MayTrade(i, j, parts) && profile[i] != profile[j]) return false;
    }
  }
  return true;
}

int MostTrading(const std::vector<int>& parts) {
  int most = 0;
  int trading = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    trading = i > 0 && parts[i] == parts[i - 1] ? trading + 1 : 1;
    most = std::max(most, trading);
  }
  return most;
}

std::vector<Cuts> TensorPatterns(const Shape& shape, const Cuts& given,
                                 const Restrictions& restrictions, TensorFreedom free,
                                 const PatternOptions& options, bool* complete) {
  *complete = true;
  if (!AreFirstStepsGiven(given) || restrictions.same_dimension) {
    return PatternsOf(TensorAlternatives(shape, given, options.parts, restrictions, free,
                                         options.limit, complete),
                      options);
  }
  return Enumerate(CutExtents(shape, restrictions.equal_tiles, free.uneven),
                   TensorCandidates(shape, restrictions, free), given, free.whole,
                   options, complete);
}

std::vector<Cuts> OperatorPatterns(const SplitVariables& variables, const Cuts& given,
                                   const Restrictions& restrictions,
                                   const PatternOptions& options, bool* complete) {
  *complete = true;
  if (!AreFirstStepsGiven(given) || restrictions.same_dimension ||
      restrictions.forbid_output_reduction) {
    return PatternsOf(OperatorAlternatives(variables, given, options.parts, restrictions,
                                           options.limit, complete),
                      options);
  }
  std::vector<Cuts> all;
  const bool always =
      variables.adds_terms || MayComputeWhole(restrictions, variables.row);
  for (const bool may_be_whole : {always, true}) {
    if (!all.empty() || !*complete) break;
    all = Enumerate(
        CutExtents(variables.extents, restrictions.equal_tiles, variables.uneven),
        variables.candidates, given, may_be_whole, options, complete);
    all.erase(
        std::remove_if(all.begin(), all.end(),
                       [&](const Cuts& cuts) { return !ReducesOneWay(variables, cuts); }),
        all.end());
  }
  return all;
}

}  // namespace tofu
