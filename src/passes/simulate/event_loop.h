// Runs operations on a machine, event by event.
//
// The script's thread pushes operations one after the other. An operation that has been
// pushed and waits for no other joins the queue of its device. A device's threads take
// operations from it in order: each launches its operation (host), computes, and moves
// its flows.
//   host      all busy threads of the host share its cores: on CPU contexts the threads
//             that compute, on GPUs those that launch or push
//   compute   operations that run on a GPU at the same time share it equally
//   flow      after the link's latency, the flows that cross a port or a group share its
//             bandwidth equally; none is faster than the link's rate for its size
//
// Input:      operations (operations.h) and a machine.
// Output:     the time and the cause of each operation's start, and how busy threads and
//             links were.
// Errors:     InternalError if operations wait for each other in a circle.
// Position:   between operations.h and simulate.h.
// Complexity: O(E * A + D) for E events, A operations running at a time, D dependencies.
#ifndef TOFU_PASSES_SIMULATE_EVENT_LOOP_H_
#define TOFU_PASSES_SIMULATE_EVENT_LOOP_H_

#include <vector>

#include "machine/machine.h"
#include "passes/simulate/operations.h"

namespace tofu {

// No operation: the script's thread had to push it first.
constexpr int kScript = -1;

struct Ran {
  double begin_s = 0;
  double end_s = 0;
  double host_s = 0;  // the operation's time, by activity
  double compute_s = 0;
  double link_s = 0;
  int cause = kScript;  // the operation whose end allowed it to begin
};

// The use of all groups of a level of links that had traffic.
struct LinkUse {
  int level = 0;
  int group = 0;
  double busy_s = 0;  // time with at least one flow
  double bytes = 0;
};

struct Execution {
  double step_s = 0;
  double push_s = 0;                  // when the script's thread has pushed everything
  std::vector<Ran> ran;               // [operation]
  std::vector<double> device_busy_s;  // [device]: time with at least one operation
  std::vector<LinkUse> links;
};

Execution RunOperations(const Operations& operations, const Machine& machine);

}  // namespace tofu

#endif  // TOFU_PASSES_SIMULATE_EVENT_LOOP_H_
