#include "solver/problem/table_memo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "solver/problem/choice_problem.h"

namespace tofu {
namespace {

// A variable with up to two tables, seen from either side.
struct Variable {
  explicit Variable(unsigned seed) : random(seed) {
    own = 1 + Draw(4);
    for (int x = 0; x < own; ++x) unary.push_back(Draw(4));
    for (int count = Draw(3); count > 0; --count) {
      std::vector<int64_t> cells(static_cast<size_t>(own) * (1 + Draw(4)));
      for (int64_t& cell : cells) cell = Draw(8) == 0 ? kForbidden : Draw(5);
      tables.push_back(memo.Unify(cells));
    }
    for (const SharedCells& table : tables) {
      ends.push_back({&table, Draw(2) == 0, own, static_cast<int>(table.size()) / own});
    }
  }

  int Draw(int count) { return static_cast<int>(random() % count); }
  int Other(size_t t) const { return t < ends.size() ? ends[t].other : 1; }
  int64_t Cost(int x, int y, int z) const {
    int64_t cost = unary[x];
    if (!ends.empty()) cost = SaturatingAdd(cost, ends[0].At(x, y));
    if (ends.size() > 1) cost = SaturatingAdd(cost, ends[1].At(x, z));
    return cost;
  }

  std::mt19937 random;
  TableMemo memo;
  int own = 0;
  std::vector<int64_t> unary;
  std::vector<SharedCells> tables;
  std::vector<TableEnd> ends;
};

TEST(TableMemo, EqualTablesAreOne) {
  TableMemo memo;
  const SharedCells a = memo.Unify({1, 2, 3});
  EXPECT_EQ(&a.vector(), &memo.Unify({1, 2, 3}).vector());
  EXPECT_NE(&a.vector(), &memo.Unify({1, 2, 4}).vector());
}

TEST(TableMemo, TheLeastOfAVariableIsThatOfItsValues) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Variable v(seed);
    for (int again = 0; again < 2; ++again) {
      const LeastTable& least = v.memo.Least(v.unary, v.ends);
      for (int y = 0; y < v.Other(0); ++y) {
        for (int z = 0; z < v.Other(1); ++z) {
          int64_t expected = kForbidden;
          for (int x = 0; x < v.own; ++x) expected = std::min(expected, v.Cost(x, y, z));
          const size_t cell = static_cast<size_t>(y) * v.Other(1) + z;
          ASSERT_EQ(least.cost[cell], expected);
          ASSERT_EQ(v.Cost(least.value[cell], y, z), expected);
        }
      }
    }
  }
}

TEST(TableMemo, SomeUndominatedValueIsBestWhateverTheOthersChoose) {
  int removed = 0;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Variable v(seed);
    const std::vector<char> keep = v.memo.Undominated(v.unary, v.ends);
    removed += static_cast<int>(std::count(keep.begin(), keep.end(), 0));
    for (int y = 0; y < v.Other(0); ++y) {
      for (int z = 0; z < v.Other(1); ++z) {
        int64_t best = kForbidden;
        int64_t kept = kForbidden;
        for (int x = 0; x < v.own; ++x) {
          best = std::min(best, v.Cost(x, y, z));
          if (keep[x]) kept = std::min(kept, v.Cost(x, y, z));
        }
        ASSERT_EQ(kept, best);
      }
    }
  }
  EXPECT_GT(removed, 200);
}

// Each value is the best for some choice of the others. Over ten tables the loss of one
// against the other adds up to more than 2^63.
TEST(TableMemo, NoValueIsDominatedWhoseLossesAddUpBeyondAnyNumber) {
  const int64_t most = kForbidden - 1;
  TableMemo memo;
  const SharedCells table = memo.Unify({0, most, most, 0});
  const std::vector<TableEnd> ends(10, {&table, true, 2, 2});
  EXPECT_EQ(memo.Undominated({0, 0}, ends), (std::vector<char>{1, 1}));
}

TEST(TableMemo, ShrinksAndAddsEitherWayRound) {
  TableMemo memo;
  const SharedCells table = memo.Unify({1, 2, 3, 4, 5, 6});  // 2 x 3
  EXPECT_EQ(memo.Shrink({&table, true, 2, 3}, {0, 1}).vector(),
            (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(memo.Shrink({&table, false, 3, 2}, {1, 0, 1}).vector(),
            (std::vector<int64_t>{1, 3, 4, 6}));
  const SharedCells turned = memo.Unify({10, 40, 20, 50, 30, 60});  // 3 x 2
  EXPECT_EQ(memo.Sum(table, turned, 3, true).vector(),
            (std::vector<int64_t>{11, 22, 33, 44, 55, 66}));
  EXPECT_EQ(memo.Sum(table, table, 3, false).vector(),
            (std::vector<int64_t>{2, 4, 6, 8, 10, 12}));
}

TEST(TableMemo, ForgetsWhenItHoldsTooMuch) {
  TableMemo memo;
  EXPECT_FALSE(memo.Tidy());
  memo.Unify(std::vector<int64_t>(size_t{1} << 24, 1));
  EXPECT_TRUE(memo.Tidy());
  EXPECT_FALSE(memo.Tidy());
}

}  // namespace
}  // namespace tofu
