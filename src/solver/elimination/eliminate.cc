#include "solver/elimination/eliminate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "solver/elimination/elimination_order.h"
#include "solver/elimination/elimination_schedule.h"
#include "solver/problem/cost_table.h"

namespace tofu {
namespace {

// Improvement stops after this many rounds without success.
constexpr int kMaxFruitlessRounds = 8;
constexpr int kMaxRounds = 64;
// The most cells of a table in the improvement.
constexpr int64_t kSmallTable = int64_t{1} << 14;
constexpr size_t kMaxPlans = 8;  // in a cache

// The most cells of a table after the deadline.
constexpr int64_t kTinyTable = 64;

// Bucket elimination in a given order. Tables that would exceed the limit are divided
// if there is no incumbent; otherwise some variables keep the incumbent's values.
class Eliminator {
 public:
  Eliminator(const ChoiceProblem& problem, const std::vector<int>& order,
             const EliminateOptions& options, TablePool* pool)
      : problem_(problem),
        domain_(problem.domain),
        order_(order),
        options_(options),
        pool_(pool),
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

  // Returns the best values that agree with `incumbent` at all variables that have to be
  // fixed to keep tables small; fixes the variables first that were fixed least often.
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
      if (problem_.unary[v].empty()) continue;
      PutKnown({static_cast<int>(v)}, pool_->Intern(problem_.unary[v]));
    }
    for (const ChoiceProblem::Pair& pair : problem_.pairs) {
      PutKnown({std::min(pair.a, pair.b), std::max(pair.a, pair.b)},
               pool_->InternPair(pair.cost, domain_[pair.b], pair.a > pair.b));
    }
  }

  void PutKnown(std::vector<int> scope, TablePool::Known known) {
    bound_ += known.constant;
    Put({std::move(scope), known.cells});
  }

  // Puts a table into the bucket of its variable that is eliminated first.
  void Put(CostTable table) {
    if (table.scope.empty()) return;  // its one cell is 0
    int first = table.scope[0];
    for (int v : table.scope) {
      if (position_[v] < position_[first]) first = v;
    }
    buckets_[first].push_back(std::move(table));
  }

  int64_t MaxTable() const {
    return IsPast(options_.deadline) ? std::min(kTinyTable, options_.max_table)
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
                         return a->cells->size() > b->cells->size();
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
      Put(pool_->MinimizeOut(chosen, v, domain_, &bound_));
      rest = std::move(left);
    }
  }

  void Fix(int v, const std::vector<int>& incumbent, std::vector<int>* times_fixed) {
    for (CostTable& table : buckets_[v]) {
      table = pool_->Restrict(table, fixed_, domain_, &bound_);
    }
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
      for (CostTable& table : buckets_[v]) {
        table = pool_->Restrict(table, fixed_, domain_, &bound_);
      }
    }
    if (fixed_[v] < 0) {
      if (!buckets_[v].empty()) {
        Put(pool_->MinimizeOut(Tables(v), v, domain_, &bound_));
      }
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

  const ChoiceProblem& problem_;
  const std::vector<int>& domain_;
  const std::vector<int>& order_;
  const EliminateOptions& options_;
  TablePool* const pool_;
  std::vector<int> position_;                    // [variable] in order_
  std::vector<int> fixed_;                       // [variable]: its value, or -1
  std::vector<std::vector<CostTable>> buckets_;  // [variable]
  int64_t bound_;
  bool exact_ = true;
};

void ImproveByRounds(const ChoiceProblem& problem, const std::vector<int>& order,
                     EliminateOptions options, TablePool* pool, EliminateResult* result) {
  options.max_table = std::min(options.max_table, kSmallTable);
  std::vector<int> times_fixed(order.size(), 0);
  int fruitless = 0;
  for (int round = 0; round < kMaxRounds && fruitless < kMaxFruitlessRounds; ++round) {
    if (result->cost == result->lower_bound || IsPast(options.deadline)) return;
    std::vector<int> values =
        Eliminator(problem, order, options, pool).Improve(result->values, &times_fixed);
    const int64_t cost = problem.Sum(values);
    TOFU_CHECK(cost <= result->cost)
        << "an improvement from " << result->cost << " to " << cost;
    fruitless = cost < result->cost ? 0 : fruitless + 1;
    result->cost = cost;
    result->values = std::move(values);
  }
}

// Gives each variable in turn its best value next to those before it. The lower bound is
// only the sum of the tables' least cells.
EliminateResult DecideInTurn(const ChoiceProblem& problem) {
  EliminateResult result;
  const size_t count = problem.domain.size();
  std::vector<std::vector<const ChoiceProblem::Pair*>> back(count);
  result.lower_bound = problem.constant;
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    back[std::max(pair.a, pair.b)].push_back(&pair);
    const std::vector<int64_t>& cells = pair.cost.vector();
    result.lower_bound += *std::min_element(cells.begin(), cells.end());
  }
  result.values.assign(count, 0);
  for (size_t v = 0; v < count; ++v) {
    std::vector<int64_t> costs = problem.unary[v];
    costs.resize(static_cast<size_t>(problem.domain[v]), 0);
    result.lower_bound += *std::min_element(costs.begin(), costs.end());
    for (const ChoiceProblem::Pair* pair : back[v]) {
      const bool is_a = pair->a == static_cast<int>(v);
      const int other = result.values[is_a ? pair->b : pair->a];
      const int width = problem.domain[pair->b];
      for (int x = 0; x < problem.domain[v]; ++x) {
        costs[x] += is_a ? pair->cost[x * width + other] : pair->cost[other * width + x];
      }
    }
    result.values[v] =
        static_cast<int>(std::min_element(costs.begin(), costs.end()) - costs.begin());
  }
  result.cost = problem.Sum(result.values);
  return result;
}

EliminateStatus StatusOf(const EliminateResult& result) {
  return result.cost == result.lower_bound ? EliminateStatus::kOptimal
                                           : EliminateStatus::kFeasible;
}

}  // namespace

EliminationCache::Plan& EliminationCache::PlanOf(const ChoiceProblem& problem,
                                                 int64_t max_table, Deadline deadline) {
  const auto fits = [&](const Plan& plan) {
    return plan.max_table == max_table && plan.domain == problem.domain &&
           std::equal(plan.edges.begin(), plan.edges.end(), problem.pairs.begin(),
                      problem.pairs.end(),
                      [](std::pair<int, int> edge, const ChoiceProblem::Pair& pair) {
                        return edge.first == pair.a && edge.second == pair.b;
                      });
  };
  const auto known = std::find_if(plans_.begin(), plans_.end(), fits);
  if (known != plans_.end()) return *known;
  Plan plan;
  plan.domain = problem.domain;
  plan.max_table = max_table;
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    plan.edges.emplace_back(pair.a, pair.b);
  }
  plan.order = MinFillOrder(plan.domain, plan.edges, max_table, deadline);
  if (plan.order.exact) {
    plan.schedule.emplace(plan.domain, plan.edges, plan.order.order, &pool_);
  }
  if (plans_.size() == kMaxPlans) plans_.pop_front();
  plans_.push_back(std::move(plan));
  return plans_.back();
}

EliminateResult Eliminate(const ChoiceProblem& problem, const EliminateOptions& options,
                          EliminationCache* cache) {
  EliminationCache own;
  if (cache == nullptr) cache = &own;
  EliminateResult result;
  if (IsPast(options.deadline)) {
    result = DecideInTurn(problem);
    result.status = StatusOf(result);
    return result;
  }
  EliminationCache::Plan& plan =
      cache->PlanOf(problem, options.max_table, options.deadline);
  if (!plan.schedule && plan.order.work > options.max_work) return result;
  cache->pool().Tidy();
  if (plan.schedule &&
      plan.schedule->Run(problem, options.max_work, options.deadline, &cache->pool(),
                         &result.values, &result.lower_bound)) {
    result.cost = problem.Sum(result.values);
    TOFU_CHECK(result.cost == result.lower_bound)
        << "eliminated to " << result.lower_bound << ", but the values cost "
        << result.cost;
    result.status = StatusOf(result);
    return result;
  }
  if (plan.schedule && !IsPast(options.deadline)) return result;  // too much work
  Eliminator eliminator(problem, plan.order.order, options, &cache->pool());
  result.values = eliminator.Run();
  result.cost = problem.Sum(result.values);
  result.lower_bound = eliminator.lower_bound();
  TOFU_CHECK(!eliminator.exact() || result.cost == result.lower_bound)
      << "eliminated to " << result.lower_bound << ", but the values cost "
      << result.cost;
  ImproveByRounds(problem, plan.order.order, options, &cache->pool(), &result);
  result.status = StatusOf(result);
  return result;
}

}  // namespace tofu
