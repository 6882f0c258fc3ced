#include "solver/explore_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tofu {
namespace {

// Choices as pairs (used, cost), searched one by one.
class Choices {
 public:
  explicit Choices(unsigned seed) : random_(seed) {
    const int count = 1 + Draw(40);
    for (int i = 0; i < count; ++i) all_.emplace_back(10 + Draw(200), 1 + Draw(50));
  }

  LimitPoint Cheapest(int64_t limit) {
    ++searches;
    LimitPoint best{0, kNone, true, -1};
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto& [used, cost] = all_[i];
      // Any choice of equal cost may be found; this search finds the one that uses most.
      if (used > limit || cost > best.cost) continue;
      if (cost == best.cost && used < best.used) continue;
      best = {used, cost, true, static_cast<int>(i)};
    }
    return best;
  }

  LimitPoint Smallest() const {
    const auto least = *std::min_element(all_.begin(), all_.end());
    const auto most = std::max_element(all_.begin(), all_.end(), [&](auto a, auto b) {
      return std::pair(a.first == least.first, a.second) <
             std::pair(b.first == least.first, b.second);
    });
    return {most->first, most->second, false, -1};
  }

  // Two known choices: the smallest, and any other, which may be far from the best.
  std::vector<LimitPoint> Known() const {
    const auto& [used, cost] = all_.back();
    return {{used, cost, false, -1}, Smallest()};
  }

  std::vector<std::pair<int64_t, int64_t>> Frontier() const {
    std::vector<std::pair<int64_t, int64_t>> sorted = all_;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::pair<int64_t, int64_t>> kept;
    for (const auto& each : sorted) {
      if (kept.empty() || each.second < kept.back().second) kept.push_back(each);
    }
    return kept;
  }

  int searches = 0;
  static constexpr int64_t kNone = int64_t{1} << 40;

 private:
  int Draw(int below) {
    return std::uniform_int_distribution<int>(0, below - 1)(random_);
  }

  std::mt19937 random_;
  std::vector<std::pair<int64_t, int64_t>> all_;
};

std::vector<std::pair<int64_t, int64_t>> Pairs(const LimitFrontier& frontier) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const LimitPoint& point : frontier.points) {
    pairs.emplace_back(point.used, point.cost);
  }
  return pairs;
}

LimitFrontier Explore(Choices* choices, const ExploreOptions& options,
                      int64_t unproven = -1) {
  const LimitPoint cheapest = choices->Cheapest(Choices::kNone);
  choices->searches = 0;
  return ExploreLimits(cheapest, choices->Known(), options,
                       [&](int64_t limit, const LimitPoint& best) {
                         LimitPoint point = choices->Cheapest(limit);
                         EXPECT_LE(best.used, limit);
                         EXPECT_LE(point.cost, best.cost);
                         point.is_proven = limit != unproven;
                         return point;
                       });
}

// A seed of choices with several pairs.
unsigned Rich() {
  unsigned seed = 1;
  while (Choices(seed).Frontier().size() < 4) ++seed;
  return seed;
}

TEST(ExploreLimits, FindsAllPairsOfRandomChoices) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Choices choices(seed);
    ExploreOptions options;
    options.least = choices.Smallest().used;
    options.max_searches = 1000;
    const LimitFrontier frontier = Explore(&choices, options);
    EXPECT_EQ(Pairs(frontier), choices.Frontier());
    EXPECT_TRUE(frontier.is_complete);
    EXPECT_LE(choices.searches, 100);
  }
}

TEST(ExploreLimits, StopsAndSaysThatPairsMayBeMissing) {
  int incomplete = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    Choices choices(seed);
    const auto all = choices.Frontier();
    ExploreOptions options;
    options.least = choices.Smallest().used;
    options.max_searches = 3;
    const LimitFrontier frontier = Explore(&choices, options);
    EXPECT_LE(choices.searches, 3);
    EXPECT_EQ(Pairs(frontier).front().first, all.front().first);
    EXPECT_EQ(Pairs(frontier).back().second, all.back().second);
    if (frontier.is_complete) {
      EXPECT_EQ(Pairs(frontier), all);
    }
    incomplete += !frontier.is_complete;
  }
  EXPECT_GE(incomplete, 10);
}

TEST(ExploreLimits, IsCompleteOnlyIfAllSearchesAreProvenDownToTheLeast) {
  Choices choices(Rich());
  ExploreOptions options;
  options.max_searches = 1000;
  options.least = choices.Smallest().used;
  EXPECT_TRUE(Explore(&choices, options).is_complete);
  EXPECT_FALSE(Explore(&choices, options, options.least).is_complete);
  options.least -= 1;
  EXPECT_FALSE(Explore(&choices, options).is_complete);
}

TEST(ExploreLimits, KeepsWhatIsKnown) {
  ExploreOptions options;
  options.max_searches = 1;
  const auto fail = [](int64_t, const LimitPoint& best) { return best; };
  const LimitFrontier frontier = ExploreLimits(
      {30, 1, true, 0}, {{10, 9, false, 1}, {20, 5, false, 2}}, options, fail);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{10, 9}, {20, 5}, {30, 1}};
  EXPECT_EQ(Pairs(frontier), expected);
}

TEST(ExploreLimits, ADeadlineEndsIt) {
  Choices choices(Rich());
  ExploreOptions options;
  options.deadline = Deadline::clock::now();
  EXPECT_FALSE(Explore(&choices, options).is_complete);
  EXPECT_EQ(choices.searches, 0);
}

}  // namespace
}  // namespace tofu
