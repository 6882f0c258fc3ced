// Rates of copies between workers while all workers read. On a mixed machine, all copies
// take as long as those over the slowest device's links.
//
// Errors:     none.
// Position:   used by time_cost.h.
// Complexity: O(kinds of devices).
#ifndef TOFU_PASSES_SEARCH_COST_LINK_RATES_H_
#define TOFU_PASSES_SEARCH_COST_LINK_RATES_H_

#include <vector>

#include "machine/machine.h"

namespace tofu {

class LinkRates {
 public:
  // Worker i runs on the machine's device i. The machine must outlive the rates.
  LinkRates(const Machine& machine, int workers);

  // One device of each kind that workers run on.
  const std::vector<int>& kinds() const { return kinds_; }
  // The bytes per second that no copy over a level exceeds.
  double Most(int level) const;
  // The time of `copies` copies of `bytes` each, one after the other.
  double Seconds(int level, double bytes, double copies) const;

 private:
  const Machine& machine_;
  std::vector<int> kinds_;
  // [kind of devices][level]: a worker's share of ports and groups in bytes per second;
  // 0: no limit.
  std::vector<std::vector<double>> share_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_COST_LINK_RATES_H_
