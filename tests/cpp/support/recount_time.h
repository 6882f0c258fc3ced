// Predicts the time of a plan worker by worker and element by element, from the rules
// that passes/search/time_cost.h states. An oracle, as recount.h: it shares no code with
// the search, only the machine's tables of rates.
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
  int64_t added_bytes = 0;     // of these, by routes
  int routes = 0;              // of inputs
  int output_routes = 0;

  RecountedTime& operator+=(const RecountedTime& other);
};

// `works`: [node], of whole operators. `is_parameter`: [entry]. `read`:
// ReadTensors(graph).
RecountedTime RecountNodeTime(const Graph& graph, const StrategyTable& table,
                              const Plan& plan, const Machine& machine,
                              const std::vector<Work>& works,
                              const std::vector<bool>& is_parameter,
                              const std::vector<bool>& read, int node);

RecountedTime RecountTime(const Graph& graph, const StrategyTable& table,
                          const Plan& plan, const Machine& machine,
                          const std::vector<Work>& works,
                          const std::vector<bool>& is_parameter);

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_RECOUNT_TIME_H_
