#include "solver/elimination/elimination_schedule.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tofu {
namespace {

constexpr size_t kStepsPerLook = 64;  // steps between checks of the clock

// The union of the tables' variables without `v`, ascending.
std::vector<int> Union(const std::vector<int>& tables,
                       const std::vector<std::vector<int>>& scopes, int v) {
  std::vector<int> all;
  for (int table : tables) {
    all.insert(all.end(), scopes[table].begin(), scopes[table].end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  all.erase(std::find(all.begin(), all.end(), v));
  return all;
}

}  // namespace

EliminationSchedule::EliminationSchedule(std::vector<int> domain,
                                         const std::vector<std::pair<int, int>>& edges,
                                         const std::vector<int>& order, TablePool* pool)
    : domain_(std::move(domain)) {
  const size_t num_variables = domain_.size();
  std::vector<int> position(num_variables);
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int>(i);
  std::vector<std::vector<int>> scopes;                  // [table]
  std::vector<std::vector<int>> buckets(num_variables);  // [variable]: its tables
  const auto add_table = [&](std::vector<int> scope) {
    if (!scope.empty()) {
      const int first = *std::min_element(scope.begin(), scope.end(), [&](int a, int b) {
        return position[a] < position[b];
      });
      buckets[first].push_back(static_cast<int>(scopes.size()));
    }
    scopes.push_back(std::move(scope));
  };
  for (size_t v = 0; v < num_variables; ++v) add_table({static_cast<int>(v)});
  for (const auto& [a, b] : edges) add_table({std::min(a, b), std::max(a, b)});
  for (int v : order) {
    std::vector<int> scope = Union(buckets[v], scopes, v);
    AddStep(v, buckets[v], scopes, scope, pool);
    add_table(std::move(scope));
  }
}

void EliminationSchedule::AddStep(int v, const std::vector<int>& tables,
                                  const std::vector<std::vector<int>>& scopes,
                                  const std::vector<int>& scope, TablePool* pool) {
  SumPattern pattern{domain_[v], {}, {}};
  for (int u : scope) pattern.domain.push_back(domain_[u]);
  for (int table : tables) {
    Operand operand;
    operand.table = table;
    operand.strides = strides_.size();
    std::vector<int>& places = pattern.operands.emplace_back();
    int64_t stride = 1;
    for (size_t i = scopes[table].size(); i-- > 0;) {
      const int u = scopes[table][i];
      if (u == v) {
        operand.value_stride = stride;
        places.push_back(SumPattern::kMinimized);
      } else {
        strides_.push_back({u, stride});
        const auto it = std::lower_bound(scope.begin(), scope.end(), u);
        places.push_back(static_cast<int>(it - scope.begin()));
      }
      stride *= domain_[u];
    }
    std::reverse(places.begin(), places.end());
    operand.num_strides = strides_.size() - operand.strides;
    operands_.push_back(operand);
  }
  steps_.push_back({v, pool->Number(std::move(pattern)), operands_.size() - tables.size(),
                    tables.size()});
}

bool EliminationSchedule::Run(const ChoiceProblem& problem, double max_work,
                              Deadline deadline, TablePool* pool,
                              std::vector<int>* values, int64_t* least) {
  const size_t num_variables = domain_.size();
  int64_t sum = problem.constant;
  const double work_before = pool->work();
  tables_.clear();
  const auto add = [&](TablePool::Known known) {
    sum += known.constant;
    tables_.push_back(known.cells);
  };
  for (const std::vector<int64_t>& unary : problem.unary) {
    add(unary.empty() ? TablePool::Known() : pool->Intern(unary));
  }
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    add(pool->InternPair(pair.cost, domain_[pair.b], pair.a > pair.b));
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (i % kStepsPerLook == 0 && IsPast(deadline)) return false;
    const Step& step = steps_[i];
    summed_.clear();
    for (size_t j = step.operands; j < step.operands + step.num_operands; ++j) {
      summed_.push_back(tables_[operands_[j].table]);
    }
    add(pool->Minimize(step.pattern, summed_));
    if (pool->work() - work_before > max_work) return false;
  }
  values->assign(num_variables, 0);
  for (size_t i = steps_.size(); i-- > 0;) {
    (*values)[steps_[i].variable] = BestValue(steps_[i], *values);
  }
  *least = sum;
  return true;
}

int EliminationSchedule::BestValue(const Step& step, const std::vector<int>& values) {
  sums_.assign(static_cast<size_t>(domain_[step.variable]), 0);
  for (size_t j = step.operands; j < step.operands + step.num_operands; ++j) {
    const Operand& operand = operands_[j];
    if (tables_[operand.table] == nullptr) continue;
    const int64_t* cell = tables_[operand.table]->data();
    for (size_t i = 0; i < operand.num_strides; ++i) {
      const Stride& stride = strides_[operand.strides + i];
      cell += stride.cells * values[stride.variable];
    }
    for (int64_t& sum : sums_) {
      sum += *cell;
      cell += operand.value_stride;
    }
  }
  return static_cast<int>(std::min_element(sums_.begin(), sums_.end()) - sums_.begin());
}

}  // namespace tofu
