// Holds reductions and eliminated tables for problems that share tables.
//
// Results do not depend on the cache. One thread at a time may use it.
#ifndef TOFU_SOLVER_SOLVE_CACHE_H_
#define TOFU_SOLVER_SOLVE_CACHE_H_

#include "solver/elimination/eliminate.h"
#include "solver/problem/table_memo.h"

namespace tofu {

struct SolveCache {
  TableMemo memo;
  EliminationCache elimination;
};

}  // namespace tofu

#endif  // TOFU_SOLVER_SOLVE_CACHE_H_
