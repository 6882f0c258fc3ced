// Shares the ports and groups of a machine's links among flows.
//
// Input:      a machine, and flows that begin and end.
// Output:     the present rate of each flow, and the use of each group.
// Errors:     none.
// Position:   used by event_loop.h.
// Complexity: O(L) for each call, L levels.
#ifndef TOFU_PASSES_SIMULATE_LINK_SHARES_H_
#define TOFU_PASSES_SIMULATE_LINK_SHARES_H_

#include <vector>

#include "machine/machine.h"
#include "passes/simulate/operations.h"

namespace tofu {

class LinkShares {
 public:
  // A group of devices at a level of links.
  struct Group {
    int flows = 0;  // present flows
    double busy_s = 0;
    double bytes = 0;
  };

  explicit LinkShares(const Machine& machine);

  void Begin(const Flow& flow) { Change(flow, 1); }
  void End(const Flow& flow) { Change(flow, -1); }
  // The bytes per second of a flow that has begun.
  double Rate(const Flow& flow) const;
  void Advance(double seconds);

  // [level][group]
  const std::vector<std::vector<Group>>& groups() const { return groups_; }

 private:
  void Change(const Flow& flow, int by);
  // The devices in a group of the level below.
  int Below(int level) const {
    return level == 0 ? 1 : machine_.links[level - 1].devices;
  }

  const Machine& machine_;
  std::vector<std::vector<Group>> groups_;
  std::vector<std::vector<int>> leaving_;   // [level][group of the level below]: flows
  std::vector<std::vector<int>> entering_;  // the same
};

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_LINK_SHARES_H_
