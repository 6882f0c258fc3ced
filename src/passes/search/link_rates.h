// How fast copies between workers are while all workers read. On a mixed machine they
// take as long as over the slowest devices' links.
//
// Errors:     none.
// Position:   used by time_cost.h.
// Complexity: O(kinds of devices).
#ifndef TOFU_PASSES_SEARCH_LINK_RATES_H_
#define TOFU_PASSES_SEARCH_LINK_RATES_H_

#include <vector>

#include "machine/machine.h"

namespace tofu {

class LinkRates {
 public:
  // Of the machine's first devices, one for each worker. The machine must outlive it.
  LinkRates(const Machine& machine, int workers);

  // A device of each kind that workers are on.
  const std::vector<int>& kinds() const { return kinds_; }
  // Bytes per second that no copy over a level exceeds.
  double Most(int level) const;
  // Of so many copies of `bytes` each, one after the other.
  double Seconds(int level, double bytes, double copies) const;

 private:
  const Machine& machine_;
  std::vector<int> kinds_;
  // [kind of devices][level]: what a worker has of ports and groups; 0: all
  std::vector<std::vector<double>> share_;
};

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_LINK_RATES_H_
