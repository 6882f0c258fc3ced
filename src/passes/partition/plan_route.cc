#include "passes/partition/plan_route.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tofu {
namespace {

class RoutePlanner {
 public:
  explicit RoutePlanner(const RouteRequest& request)
      : request_(request), preference_(FetchPreference(request.parts)) {
    for (size_t w = 0; w < request.regions.size(); ++w) {
      digits_.push_back(WorkerDigits(static_cast<int>(w), request.parts));
    }
  }

  std::vector<std::vector<FetchSpec>> Run(const FetchPlanner& from_tiles) const {
    std::vector<std::vector<FetchSpec>> moves(1);
    const TileSplits& first = request_.stops.front();
    std::vector<Box> pieces = Pieces(first);
    for (size_t w = 0; w < pieces.size(); ++w) {
      moves[0].push_back(from_tiles(static_cast<int>(w), pieces[w]));
    }
    for (size_t stop = 0; stop < request_.stops.size(); ++stop) {
      const bool is_last = stop + 1 == request_.stops.size();
      const TileSplits next = is_last ? TileSplits() : request_.stops[stop + 1];
      const std::vector<Box> wanted = is_last ? request_.regions : Pieces(next);
      moves.push_back(Gather(pieces, wanted, Rest(request_.stops[stop], next)));
      pieces = wanted;
    }
    return moves;
  }

 private:
  // The splits that a gathering from stop `from` to stop `to` undoes.
  TileSplits Rest(const TileSplits& from, const TileSplits& to) const {
    CheckDivides(request_.name, from, to);
    return TileSplits(from.begin() + static_cast<std::ptrdiff_t>(to.size()), from.end());
  }

  std::vector<Box> Pieces(const TileSplits& splits) const {
    std::vector<Box> regions;
    for (const Box& region : request_.regions) {
      regions.push_back(Intersect(region, request_.tensor));
    }
    return RoutePieces(request_.name, std::move(regions), splits, request_.parts);
  }

  // Whether the digits of two workers differ at no other steps.
  bool AreMates(size_t a, size_t b, const TileSplits& steps) const {
    for (size_t step = 0; step < request_.parts.size(); ++step) {
      if (digits_[a][step] == digits_[b][step]) continue;
      if (std::none_of(steps.begin(), steps.end(), [&](const TileSplit& split) {
            return split.step == static_cast<int>(step);
          })) {
        return false;
      }
    }
    return true;
  }

  std::vector<FetchSpec> Gather(const std::vector<Box>& pieces,
                                const std::vector<Box>& wanted,
                                const TileSplits& steps) const {
    std::vector<FetchSpec> fetches;
    for (size_t w = 0; w < wanted.size(); ++w) {
      std::vector<FetchSource> sources;
      for (int source : preference_[w]) {
        const size_t mate = static_cast<size_t>(source);
        if (!AreMates(w, mate, steps)) continue;
        CheckRoute(request_.regions[mate] == request_.regions[w], request_.name,
                   "workers of unlike regions");
        sources.push_back({source, pieces[mate]});
      }
      fetches.push_back(
          PlanFetch(static_cast<int>(w), wanted[w], request_.tensor, sources));
      fetches.back().fill = request_.fill;
    }
    return fetches;
  }

  const RouteRequest& request_;
  const std::vector<std::vector<int>> preference_;
  std::vector<std::vector<int>> digits_;  // [worker]
};

}  // namespace

std::vector<std::vector<FetchSpec>> PlanRoute(const RouteRequest& request,
                                              const FetchPlanner& from_tiles) {
  TOFU_CHECK(!request.stops.empty()) << "a route without stops";
  return RoutePlanner(request).Run(from_tiles);
}

std::vector<Box> RoutePieces(const std::string& name, std::vector<Box> regions,
                             const TileSplits& splits, const std::vector<int>& parts) {
  for (size_t w = 0; w < regions.size(); ++w) {
    const std::vector<int> digits = WorkerDigits(static_cast<int>(w), parts);
    for (const TileSplit& split : splits) {
      const int64_t extent = regions[w].end[split.dim] - regions[w].begin[split.dim];
      CheckRoute(CanCut(extent, parts[split.step]), name,
                 "a stop along a dimension with too few elements");
      regions[w] = PieceBox(regions[w], {split}, parts, digits);
    }
  }
  return regions;
}

void CheckDivides(const std::string& name, const TileSplits& splits,
                  const TileSplits& first) {
  CheckRoute(first.size() < splits.size() &&
                 std::equal(first.begin(), first.end(), splits.begin()),
             name, "a stop that does not divide another one");
}

void CheckRoute(bool fits, const std::string& name, const std::string& found) {
  TOFU_CHECK_USER(fits, Blame::kPlan)
      << "plan: the route of " << name << " has " << found
      << ", expected pieces of a region that workers need alike; make the plan again "
         "from this graph";
}

}  // namespace tofu
