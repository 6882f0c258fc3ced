#include "passes/simulate/link_shares.h"

#include <algorithm>

namespace tofu {

LinkShares::LinkShares(const Machine& machine) : machine_(machine) {
  const auto number = [&](int of) { return (machine.device.count + of - 1) / of; };
  for (size_t level = 0; level < machine.links.size(); ++level) {
    const int ports = number(Below(static_cast<int>(level)));
    groups_.emplace_back(static_cast<size_t>(number(machine.links[level].devices)));
    leaving_.emplace_back(static_cast<size_t>(ports), 0);
    entering_.emplace_back(static_cast<size_t>(ports), 0);
  }
}

void LinkShares::Change(const Flow& flow, int by) {
  const int top = machine_.LevelBetween(flow.from, flow.to);
  for (int level = 0; level <= top; ++level) {
    leaving_[level][flow.from / Below(level)] += by;
    entering_[level][flow.to / Below(level)] += by;
  }
  Group& group = groups_[top][flow.from / machine_.links[top].devices];
  group.flows += by;
  if (by > 0) group.bytes += flow.bytes;
}

double LinkShares::Rate(const Flow& flow) const {
  const int top = machine_.LevelBetween(flow.from, flow.to);
  const double bytes = std::max(flow.bytes, 1.0);
  const LinkLevel& from = machine_.LinkOf(flow.from, top);
  const LinkLevel& to = machine_.LinkOf(flow.to, top);
  double rate = std::min(from.bytes_per_s.At(bytes), to.bytes_per_s.At(bytes));
  // 0: no limit.
  const auto limit = [&rate](double bytes_per_s, int flows) {
    if (bytes_per_s > 0) rate = std::min(rate, bytes_per_s / flows);
  };
  for (int level = 0; level <= top; ++level) {
    limit(machine_.LinkOf(flow.from, level).port_bytes_per_s,
          leaving_[level][flow.from / Below(level)]);
    limit(machine_.LinkOf(flow.to, level).port_bytes_per_s,
          entering_[level][flow.to / Below(level)]);
  }
  const Group& group = groups_[top][flow.from / from.devices];
  limit(from.group_bytes_per_s, group.flows);
  limit(to.group_bytes_per_s, group.flows);
  return rate;
}

void LinkShares::Advance(double seconds) {
  for (std::vector<Group>& level : groups_) {
    for (Group& group : level) {
      if (group.flows > 0) group.busy_s += seconds;
    }
  }
}

}  // namespace tofu
