#include "passes/eliminate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/error.h"
#include "passes/cost_table.h"
#include "passes/elimination_order.h"

namespace tofu {
namespace {

// Improvement stops after this many rounds without success.
constexpr int kMaxFruitlessRounds = 8;
constexpr int kMaxRounds = 64;
// Tables are kept this small in the improvement, and once time is up.
constexpr int64_t kSmallTable = int64_t{1} << 14;

bool IsOver(Deadline deadline) {
  return deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline;
}

// Bucket elimination in a given order. What exceeds the table limit is either
// divided (no incumbent) or cut down by keeping some of the incumbent's values.
class Eliminator {
 public:
  Eliminator(const PairwiseProblem& problem, const std::vector<int>& order,
             const EliminateOptions& options)
      : problem_(problem),
        domain_(problem.domain),
        order_(order),
        options_(options),
        position_(order.size()),
        fixed_(order.size(), -1),
        buckets_(order.size()),
        bound_(problem.constant) {
    for (size_t i = 0; i < order.size(); ++i) position_[order[i]] = static_cast<int>(i);
  }

  // Returns values whose cost is at least lower_bound(), which no values beat.
  std::vector<int> Run() {
    Fill();
    for (int v : order_) Divide(v);
    return Backtrack();
  }

  // The best values among those that agree with `incumbent` where a variable
  // had to be fixed; those fixed least often so far are fixed first.
  std::vector<int> Improve(const std::vector<int>& incumbent,
                           std::vector<int>* times_fixed) {
    Fill();
    for (int v : order_) Fix(v, incumbent, times_fixed);
    return Backtrack();
  }

  int64_t lower_bound() const { return bound_; }
  bool exact() const { return exact_; }

 private:
  void Fill() {
    for (size_t v = 0; v < domain_.size(); ++v) {
      if (!problem_.unary[v].empty()) {
        Put({{static_cast<int>(v)}, problem_.unary[v]});
      }
    }
    for (const PairwiseProblem::Pair& pair : problem_.pairs) Put(Oriented(pair));
  }

  CostTable Oriented(const PairwiseProblem::Pair& pair) const {
    if (pair.a < pair.b) return {{pair.a, pair.b}, pair.cost};
    CostTable table{{pair.b, pair.a}, {}};
    for (int b = 0; b < domain_[pair.b]; ++b) {
      for (int a = 0; a < domain_[pair.a]; ++a) {
        table.cells.push_back(pair.cost[a * domain_[pair.b] + b]);
      }
    }
    return table;
  }

  // Into the bucket of the variable that is eliminated first.
  void Put(CostTable table) {
    if (table.scope.empty()) {
      bound_ += table.cells[0];
      return;
    }
    int first = table.scope[0];
    for (int v : table.scope) {
      if (position_[v] < position_[first]) first = v;
    }
    buckets_[first].push_back(std::move(table));
  }

  int64_t MaxTable() const {
    return IsOver(options_.deadline) ? std::min(kSmallTable, options_.max_table)
                                     : options_.max_table;
  }

  std::vector<const CostTable*> Tables(int v) const {
    std::vector<const CostTable*> tables;
    for (const CostTable& table : buckets_[v]) tables.push_back(&table);
    return tables;
  }

  void Divide(int v) {
    const double max_cells = static_cast<double>(MaxTable());
    std::vector<const CostTable*> rest = Tables(v);
    if (NumCells(UnionScope(rest, v), domain_) > max_cells) {
      exact_ = false;
      std::stable_sort(rest.begin(), rest.end(),
                       [](const CostTable* a, const CostTable* b) {
                         return a->cells.size() > b->cells.size();
                       });
    }
    while (!rest.empty()) {
      std::vector<const CostTable*> chosen;
      std::vector<const CostTable*> left;
      for (const CostTable* table : rest) {
        chosen.push_back(table);
        if (chosen.size() == 1) continue;
        if (NumCells(UnionScope(chosen, v), domain_) <= max_cells) continue;
        chosen.pop_back();
        left.push_back(table);
      }
      Put(MinimizeOut(chosen, v, domain_));
      rest = std::move(left);
    }
  }

  void Fix(int v, const std::vector<int>& incumbent, std::vector<int>* times_fixed) {
    for (CostTable& table : buckets_[v]) table = Restrict(table, fixed_, domain_);
    const double max_cells = static_cast<double>(MaxTable());
    while (fixed_[v] < 0) {
      std::vector<int> scope = UnionScope(Tables(v), v);
      if (NumCells(scope, domain_) <= max_cells) break;
      scope.push_back(v);
      const int chosen = *std::min_element(scope.begin(), scope.end(), [&](int a, int b) {
        return std::pair((*times_fixed)[a], a) < std::pair((*times_fixed)[b], b);
      });
      ++(*times_fixed)[chosen];
      fixed_[chosen] = incumbent[chosen];
      for (CostTable& table : buckets_[v]) table = Restrict(table, fixed_, domain_);
    }
    if (fixed_[v] < 0) {
      if (!buckets_[v].empty()) Put(MinimizeOut(Tables(v), v, domain_));
      return;
    }
    for (CostTable& table : std::exchange(buckets_[v], {})) Put(std::move(table));
  }

  std::vector<int> Backtrack() const {
    std::vector<int> values(domain_.size(), 0);
    for (size_t i = order_.size(); i-- > 0;) {
      const int v = order_[i];
      values[v] = fixed_[v] >= 0 ? fixed_[v] : BestValue(v, values);
    }
    return values;
  }

  int BestValue(int v, const std::vector<int>& values) const {
    int best = 0;
    int64_t best_cost = std::numeric_limits<int64_t>::max();
    for (int value = 0; value < domain_[v]; ++value) {
      int64_t cost = 0;
      for (const CostTable& table : buckets_[v]) {
        cost += CostAt(table, v, value, values, domain_);
      }
      if (cost < best_cost) {
        best_cost = cost;
        best = value;
      }
    }
    return best;
  }

  const PairwiseProblem& problem_;
  const std::vector<int>& domain_;
  const std::vector<int>& order_;
  const EliminateOptions& options_;
  std::vector<int> position_;                    // [variable] in order_
  std::vector<int> fixed_;                       // [variable]: its value, or -1
  std::vector<std::vector<CostTable>> buckets_;  // [variable]
  int64_t bound_;
  bool exact_ = true;
};

void ImproveByRounds(const PairwiseProblem& problem, const std::vector<int>& order,
                     EliminateOptions options, EliminateResult* result) {
  options.max_table = std::min(options.max_table, kSmallTable);
  std::vector<int> times_fixed(order.size(), 0);
  int fruitless = 0;
  for (int round = 0; round < kMaxRounds && fruitless < kMaxFruitlessRounds; ++round) {
    if (result->cost == result->lower_bound || IsOver(options.deadline)) return;
    std::vector<int> values =
        Eliminator(problem, order, options).Improve(result->values, &times_fixed);
    const int64_t cost = problem.Cost(values);
    TOFU_CHECK(cost <= result->cost)
        << "an improvement from " << result->cost << " to " << cost;
    fruitless = cost < result->cost ? 0 : fruitless + 1;
    result->cost = cost;
    result->values = std::move(values);
  }
}

}  // namespace

int PairwiseProblem::AddVariable(int domain_size) {
  domain.push_back(domain_size);
  unary.emplace_back();
  return static_cast<int>(domain.size()) - 1;
}

int64_t PairwiseProblem::Cost(const std::vector<int>& values) const {
  int64_t cost = constant;
  for (size_t v = 0; v < domain.size(); ++v) {
    if (!unary[v].empty()) cost += unary[v][values[v]];
  }
  for (const Pair& pair : pairs) {
    cost += pair.cost[values[pair.a] * domain[pair.b] + values[pair.b]];
  }
  return cost;
}

EliminateResult Eliminate(const PairwiseProblem& problem,
                          const EliminateOptions& options) {
  std::vector<std::pair<int, int>> edges;
  for (const PairwiseProblem::Pair& pair : problem.pairs)
    edges.emplace_back(pair.a, pair.b);
  const EliminationOrder order = MinFillOrder(problem.domain, edges, options.max_table);
  EliminateResult result;
  if (order.work > static_cast<double>(options.max_work)) return result;
  Eliminator eliminator(problem, order.order, options);
  result.values = eliminator.Run();
  result.cost = problem.Cost(result.values);
  result.lower_bound = eliminator.lower_bound();
  TOFU_CHECK(!eliminator.exact() || result.cost == result.lower_bound)
      << "eliminated to " << result.lower_bound << ", but the values cost "
      << result.cost;
  ImproveByRounds(problem, order.order, options, &result);
  result.status = result.cost == result.lower_bound ? EliminateStatus::kOptimal
                                                    : EliminateStatus::kFeasible;
  return result;
}

}  // namespace tofu
