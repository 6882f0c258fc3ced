// Predicts the time of a plan worker by worker and element by element, from the rules
// that passes/search/cost/time_cost.h states. It is an oracle as recount.h is: it shares
// no code with the search, only the machine's tables of rates.
#ifndef TOFU_TESTS_CPP_SUPPORT_RECOUNT_TIME_H_
#define TOFU_TESTS_CPP_SUPPORT_RECOUNT_TIME_H_

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/strategy_table.h"
#include "machine/machine.h"

namespace tofu {

struct RecountedTime {
  int64_t ns = 0;
  std::vector<int64_t> bytes;  // [step]
  int64_t added_bytes = 0;     // the part of these that routes add
  int routes = 0;              // routes of inputs
  int output_routes = 0;

  RecountedTime& operator+=(const RecountedTime& other);
};

// Recounts plans of one graph on one machine; all arguments must outlive it.
class TimeRecount {
 public:
  // `works`: [node], of whole operators. `is_parameter`: [entry].
  TimeRecount(const Graph& graph, const StrategyTable& table, const Machine& machine,
              const std::vector<Work>& works, std::vector<bool> is_parameter);

  RecountedTime OfNode(const Plan& plan, int node) const;
  RecountedTime OfPlan(const Plan& plan) const;

 private:
  const Graph& graph_;
  const StrategyTable& table_;
  const Machine& machine_;
  const std::vector<Work>& works_;
  const std::vector<bool> is_parameter_;
  const std::vector<bool> read_;  // [entry]
};

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_TIME_H_
