// A machine with round numbers, for tests.
#ifndef TOFU_TESTS_CPP_SUPPORT_EXAMPLE_MACHINE_H_
#define TOFU_TESTS_CPP_SUPPORT_EXAMPLE_MACHINE_H_

#include "machine/machine.h"

namespace tofu {

// CPU contexts, each with a core: 1 FLOP/s, 1 byte/s, links of 10 bytes/s, no other
// costs.
inline Machine ExampleMachine(int devices) {
  Machine machine;
  machine.name = "example";
  machine.device.count = devices;
  machine.host.cores = devices + 1;
  for (int kind = 0; kind < kNumOperatorKinds; ++kind) {
    OperatorRates rates;
    rates.kind = static_cast<OperatorKind>(kind);
    rates.flops_per_s = RateTable({{1, 1}});
    rates.bytes_per_s = RateTable({{1, 1}});
    machine.operators.push_back(rates);
  }
  LinkLevel link;
  link.name = "bus";
  link.devices = devices;
  link.bytes_per_s = RateTable({{1, 10}});
  machine.links.push_back(link);
  return machine;
}

// The same with GPUs, two threads each.
inline Machine ExampleGpus(int devices) {
  Machine machine = ExampleMachine(devices);
  machine.device.is_gpu = true;
  machine.device.threads = 2;
  machine.device.copy_threads = 2;
  return machine;
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_EXAMPLE_MACHINE_H_
