#include "solver/problem/cost_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace tofu {
namespace {

using Cells = std::vector<int64_t>;

// A table of the pool with these cells; adds the subtracted minimum to *constant.
CostTable Interned(TablePool* pool, std::vector<int> scope, Cells cells,
                   int64_t* constant) {
  const TablePool::Known known = pool->Intern(std::move(cells));
  *constant += known.constant;
  return {std::move(scope), known.cells};
}

TEST(TablePool, EqualCellsUpToAConstantAreStoredOnce) {
  TablePool pool;
  const TablePool::Known a = pool.Intern({5, 7, 6});
  EXPECT_EQ(*a.cells, (Cells{0, 2, 1}));
  EXPECT_EQ(a.constant, 5);
  const TablePool::Known b = pool.Intern({1, 3, 2});
  EXPECT_EQ(a.cells, b.cells);
  EXPECT_EQ(b.constant, 1);
  EXPECT_NE(pool.Intern({0, 2, 2}).cells, a.cells);
  EXPECT_EQ(pool.num_tables(), 2u);
}

TEST(TablePool, APairMayBeTurned) {
  TablePool pool;
  const SharedCells cost = {1, 2, 3, 4, 5, 6};  // 2 x 3
  EXPECT_EQ(*pool.InternPair(cost, 3, false).cells, (Cells{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(*pool.InternPair(cost, 3, true).cells, (Cells{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(pool.InternPair(cost, 3, true).constant, 1);
}

TEST(TablePool, CellsOfOneAddressMayBePairsOfAnyWidth) {
  TablePool pool;
  const SharedCells cost = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(*pool.InternPair(cost, 3, true).cells, (Cells{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(*pool.InternPair(cost, 2, true).cells, (Cells{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(*pool.InternPair(cost, 3, true).cells, (Cells{0, 3, 1, 4, 2, 5}));
}

TEST(TablePool, ThePoolKeepsTheAddressesThatItKnows) {
  TablePool pool;
  SharedCells cost = {1, 2, 3, 4};
  pool.InternPair(cost, 2, false);
  const std::weak_ptr<const Cells> owned = cost.pointer();
  cost = {};
  EXPECT_FALSE(owned.expired()) << "other cells could get the address";
}

TEST(TablePool, MinimizesOutWhatTryingEveryValueFinds) {
  std::mt19937 random(1);
  const std::vector<int> domain = {2, 3, 4};
  const auto cells = [&](size_t count) {
    Cells drawn;
    for (size_t i = 0; i < count; ++i) {
      drawn.push_back(static_cast<int64_t>(random() % 50) + 3);
    }
    return drawn;
  };
  TablePool pool;
  for (int round = 0; round < 20; ++round) {
    const Cells of_v = cells(3), pair = cells(6), other = cells(12);
    int64_t constant = 0;
    const CostTable a = Interned(&pool, {1}, of_v, &constant);
    const CostTable b = Interned(&pool, {0, 1}, pair, &constant);
    const CostTable c = Interned(&pool, {1, 2}, other, &constant);
    const CostTable least = pool.MinimizeOut({&a, &b, &c}, 1, domain, &constant);
    ASSERT_EQ(least.scope, (std::vector<int>{0, 2}));
    for (int x = 0; x < 2; ++x) {
      for (int z = 0; z < 4; ++z) {
        int64_t expected = 1000;
        for (int y = 0; y < 3; ++y) {
          expected = std::min(expected, of_v[y] + pair[3 * x + y] + other[4 * y + z]);
        }
        ASSERT_EQ((*least.cells)[4 * x + z] + constant, expected);
      }
    }
  }
}

TEST(TablePool, MinimizingEqualTablesIsRemembered) {
  TablePool pool;
  int64_t constant = 0;
  const CostTable left = Interned(&pool, {0, 1}, {0, 5, 2, 9}, &constant);
  const CostTable right = Interned(&pool, {2, 3}, {0, 5, 2, 9}, &constant);
  const std::vector<int> domain = {2, 2, 2, 2};
  const CostTable a = pool.MinimizeOut({&left}, 0, domain, &constant);
  const size_t known = pool.num_tables();
  const CostTable b = pool.MinimizeOut({&right}, 2, domain, &constant);
  EXPECT_EQ(a.cells, b.cells);
  EXPECT_EQ(a.scope, std::vector<int>{1});
  EXPECT_EQ(b.scope, std::vector<int>{3});
  EXPECT_EQ(pool.num_tables(), known);
  // The other variable of the same table gives other cells.
  EXPECT_NE(pool.MinimizeOut({&left}, 1, domain, &constant).cells, a.cells);
}

TEST(TablePool, RestrictsToTheFixedValues) {
  TablePool pool;
  int64_t constant = 0;
  const std::vector<int> domain = {2, 3, 2};
  const CostTable table =
      Interned(&pool, {0, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, &constant);
  const CostTable row = pool.Restrict(table, {1, -1, 0}, domain, &constant);
  EXPECT_EQ(row.scope, std::vector<int>{1});
  EXPECT_EQ(*row.cells, (Cells{0, 2, 4}));
  EXPECT_EQ(constant, 6);
}

TEST(CostTable, FindsTheCellOfAChoice) {
  const Cells cells = {0, 1, 2, 3, 4, 5};
  const CostTable table = {{1, 3}, &cells};
  const std::vector<int> domain = {9, 2, 9, 3};
  EXPECT_EQ(CostAt(table, 1, 1, {0, 0, 0, 2}, domain), 5);
  EXPECT_EQ(CostAt(table, 3, 1, {0, 1, 0, 0}, domain), 4);
  EXPECT_EQ(NumCells({1, 3}, domain), 6);
  EXPECT_EQ(NumCells({}, domain), 1);
  const CostTable other = {{0, 3}, &cells};
  EXPECT_EQ(UnionScope({&table, &other}, 3), (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace tofu
