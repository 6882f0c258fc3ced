#include "passes/recompute/choose_segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "solver/explore_limits.h"

namespace tofu {
namespace {

// A row of operators of which each writes one or two tensors and reads some before it.
ForwardRow RandomRow(int operators, std::mt19937* random) {
  const auto draw = [&](int most) {
    return std::uniform_int_distribution<int>(0, most)(*random);
  };
  ForwardRow row;
  for (int op = 0; op < operators; ++op) {
    ForwardRow::Operator o;
    o.cost = draw(9);
    o.fixed = draw(5) == 0;
    std::set<int> reads;
    const int known = static_cast<int>(row.tensors.size());
    for (int i = draw(2); i > 0 && known > 0; --i) {
      reads.insert(std::max(0, known - 1 - draw(3)));
    }
    o.reads.assign(reads.begin(), reads.end());
    for (int tensor : reads) row.tensors[tensor].last_reader = op;
    for (int i = draw(3) == 0 ? 2 : 1; i > 0; --i) {
      o.writes.push_back(static_cast<int>(row.tensors.size()));
      row.tensors.push_back({op, op, 1 + draw(20), draw(2) > 0, draw(9) == 0});
    }
    row.operators.push_back(o);
  }
  return row;
}

struct Totals {
  int64_t bytes = 0;
  int64_t kept = 0;
  int64_t cost = 0;
};

// Counts a choice's bytes and costs from the definition: sets that grow until nothing
// changes.
Totals Recount(const ForwardRow& row, const std::vector<std::pair<Segment, bool>>& all) {
  Totals totals;
  for (const auto& [segment, runs_again] : all) {
    const auto inside = [&, s = segment](int op) { return op >= s.begin && op < s.end; };
    std::set<int> stay;
    std::set<int> repeat;
    std::set<int> needed;  // tensors written here that the backward pass reads
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      const ForwardRow::Tensor& t = row.tensors[i];
      if (t.resident || !inside(t.writer)) continue;
      if (t.last_reader >= segment.end) stay.insert(static_cast<int>(i));
      if (t.saved) needed.insert(static_cast<int>(i));
    }
    for (size_t before = 0; before != needed.size() + stay.size() + repeat.size();) {
      before = needed.size() + stay.size() + repeat.size();
      for (int tensor : std::set<int>(needed)) {
        const int writer = row.tensors[tensor].writer;
        if (stay.count(tensor) > 0) continue;
        if (!runs_again || row.operators[writer].fixed) {
          stay.insert(tensor);
          continue;
        }
        if (row.operators[writer].writes.front() != tensor) continue;
        repeat.insert(writer);
        for (int read : row.operators[writer].reads) {
          const ForwardRow::Tensor& t = row.tensors[read];
          if (!t.resident && inside(t.writer)) needed.insert(read);
        }
      }
    }
    for (int tensor : needed) {
      if (repeat.count(row.tensors[tensor].writer) == 0) stay.insert(tensor);
    }
    for (int tensor : stay) totals.kept += row.tensors[tensor].bytes;
    int64_t again = 0;
    for (int op : repeat) {
      totals.cost += row.operators[op].cost;
      for (int tensor : row.operators[op].writes) again += row.tensors[tensor].bytes;
    }
    totals.bytes = std::max(totals.bytes, totals.kept + again);
  }
  return totals;
}

// Calls `visit` with every way to cut and choose.
template <typename Visit>
void ForEachChoice(int operators, Visit visit) {
  for (int cuts = 0; cuts < 1 << (operators - 1); ++cuts) {
    std::vector<Segment> segments = {{0, 1}};
    for (int place = 1; place < operators; ++place) {
      if ((cuts >> (place - 1)) & 1) segments.push_back({place, place});
      segments.back().end = place + 1;
    }
    for (int again = 0; again < 1 << segments.size(); ++again) {
      std::vector<std::pair<Segment, bool>> all;
      for (size_t s = 0; s < segments.size(); ++s) {
        all.emplace_back(segments[s], ((again >> s) & 1) != 0);
      }
      visit(all);
    }
  }
}

// The choice with what lies between its segments kept as one segment each.
std::vector<std::pair<Segment, bool>> Whole(const SegmentChoice& choice, int operators) {
  std::vector<std::pair<Segment, bool>> all;
  int end = 0;
  for (Segment segment : choice.segments) {
    if (segment.begin > end) all.push_back({{end, segment.begin}, false});
    all.emplace_back(segment, true);
    end = segment.end;
  }
  if (end < operators) all.push_back({{end, operators}, false});
  return all;
}

// All pairs of bytes and cost that no other choice beats.
TEST(ChooseSegments, TheFrontierEqualsBruteForceOnRandomRows) {
  int traded = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int operators = 1 + static_cast<int>(seed % 7);
    const ForwardRow row = RandomRow(operators, &random);
    std::map<int64_t, int64_t> costs;  // bytes -> least cost
    ForEachChoice(operators, [&](const auto& all) {
      const Totals totals = Recount(row, all);
      int64_t& cost = costs.try_emplace(totals.bytes, totals.cost).first->second;
      cost = std::min(cost, totals.cost);
    });
    std::vector<std::pair<int64_t, int64_t>> expected;
    for (const auto& pair : costs) {
      if (expected.empty() || pair.second < expected.back().second) {
        expected.push_back(pair);
      }
    }
    const auto choose = [&](int64_t limit, const LimitPoint&) {
      const SegmentChoice choice = ChooseSegments(row, limit);
      return LimitPoint{choice.bytes, choice.cost, true, 0};
    };
    const LimitPoint smallest = choose(0, {});
    ExploreOptions options;
    options.least = smallest.used;
    options.max_searches = 1000;
    const LimitFrontier frontier =
        ExploreLimits(choose(SavedBytes(row), {}), {smallest}, options, choose);
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (const LimitPoint& point : frontier.points) {
      pairs.emplace_back(point.used, point.cost);
    }
    ASSERT_EQ(pairs, expected) << "seed " << seed;
    ASSERT_TRUE(frontier.is_complete);
    traded += expected.size() > 2;
  }
  EXPECT_GE(traded, 20);
}

TEST(ChooseSegments, EqualsBruteForceOnRandomRows) {
  int helped = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int operators = 1 + static_cast<int>(seed % 7);
    const ForwardRow row = RandomRow(operators, &random);
    int64_t least = std::numeric_limits<int64_t>::max();
    ForEachChoice(operators, [&](const auto& all) {
      least = std::min(least, Recount(row, all).bytes);
    });
    const SegmentChoice fewest = ChooseSegments(row, 0);
    ASSERT_EQ(fewest.bytes, least) << "seed " << seed;
    const int64_t saved = SavedBytes(row);
    helped += least < saved ? 1 : 0;
    for (const int64_t limit : {least, (least + saved) / 2, saved}) {
      if (limit == 0) continue;  // would mean "as few as possible"
      int64_t cheapest = std::numeric_limits<int64_t>::max();
      ForEachChoice(operators, [&](const auto& all) {
        const Totals totals = Recount(row, all);
        if (totals.bytes <= limit) cheapest = std::min(cheapest, totals.cost);
      });
      const SegmentChoice choice = ChooseSegments(row, limit);
      ASSERT_EQ(choice.cost, cheapest) << "seed " << seed << ", limit " << limit;
      ASSERT_LE(choice.bytes, limit) << "seed " << seed;
      const Totals totals = Recount(row, Whole(choice, operators));
      EXPECT_LE(totals.bytes, choice.bytes) << "seed " << seed;
      EXPECT_EQ(totals.cost, choice.cost) << "seed " << seed;
    }
  }
  EXPECT_GT(helped, 50) << "the rows must be worth it";
}

// A layer writes a large tensor and a small one that the next layer reads; the backward
// pass reads both.
ForwardRow Layers(int count) {
  ForwardRow row;
  for (int layer = 0; layer < count; ++layer) {
    const int before = static_cast<int>(row.tensors.size()) - 1;
    ForwardRow::Operator wide{5, false, {}, {before + 1}};
    if (before >= 0) {
      wide.reads = {before};
      row.tensors[before].last_reader = 2 * layer;
    }
    row.tensors.push_back({2 * layer, 2 * layer + 1, 90, true, false});
    row.tensors.push_back({2 * layer + 1, 2 * layer + 1, 10, true, false});
    row.operators.push_back(wide);
    row.operators.push_back({1, false, {before + 1}, {before + 2}});
  }
  return row;
}

TEST(ChooseSegments, KeepsWhatIsBetweenLayers) {
  const SegmentChoice choice = ChooseSegments(Layers(20), 0);
  // 20 small tensors and one large one, which with its small one is written again.
  EXPECT_LE(choice.bytes, 20 * 10 + 100);
  EXPECT_GE(choice.segments.size(), 10u);
  EXPECT_EQ(ChooseSegments(Layers(20), 20 * 100).segments.size(), 0u);
}

// Layers behind a chain of operators that nothing crosses: its places are the narrowest.
ForwardRow BehindANarrowChain(int chain, int layers) {
  ForwardRow row;
  for (int op = 0; op < chain; ++op) {
    row.operators.push_back({1, false, {}, {op}});
    row.tensors.push_back({op, op, 1, false, false});
  }
  ForwardRow rest = Layers(layers);
  for (ForwardRow::Operator& o : rest.operators) {
    for (int& tensor : o.reads) tensor += chain;
    for (int& tensor : o.writes) tensor += chain;
    row.operators.push_back(o);
  }
  for (ForwardRow::Tensor& tensor : rest.tensors) {
    tensor.writer += chain;
    tensor.last_reader += chain;
    row.tensors.push_back(tensor);
  }
  return row;
}

TEST(ChooseSegments, OfALongRowEachLayerCanBeASegment) {
  for (const int chain : {0, 300}) {
    const int layers = 800;  // more operators than kMostCuts
    const SegmentChoice choice = ChooseSegments(BehindANarrowChain(chain, layers), 0);
    EXPECT_LE(choice.bytes, layers * 10 + 2 * 100);
    for (Segment segment : choice.segments) {
      const int begin = std::max(segment.begin - chain, 0);
      EXPECT_EQ(begin % 2, 0) << "between layers, not within one";
    }
  }
}

// A norm writes its output, which stays for the next layer, and a deviation.
TEST(ChooseSegments, NothingRunsAgainForASecondTensorAlone) {
  ForwardRow row;
  row.operators = {{1, false, {}, {0}}, {1, false, {0}, {1, 2}}, {1, false, {1}, {3}}};
  row.tensors = {{0, 1, 90, true, false},
                 {1, 2, 90, false, false},
                 {1, 1, 10, true, false},
                 {2, 2, 90, false, false}};
  for (const int end : {2, 3}) {  // the output crosses the end, or nothing needs it
    const SegmentNeeds needs = NeedsOf(row, {0, end}, true);
    EXPECT_EQ(needs.again, (std::vector<int>{0}));
    EXPECT_EQ(needs.kept_bytes, end == 2 ? 100 : 10);
  }
  row.tensors[1].saved = true;
  EXPECT_EQ(NeedsOf(row, {0, 3}, true).again, (std::vector<int>{0, 1}));
}

TEST(ChooseSegments, AnEmptyRowHasNone) {
  EXPECT_TRUE(ChooseSegments({}, 0).segments.empty());
}

}  // namespace
}  // namespace tofu
