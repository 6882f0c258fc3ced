#include "passes/search/cost/link_rates.h"

#include <algorithm>
#include <limits>

namespace tofu {
namespace {

// The highest rate of a copy that has the link to itself.
double MostPerSecond(const LinkLevel& link) {
  double most = 0;
  for (const RateTable::Point& point : link.bytes_per_s.points()) {
    most = std::max(most, point.per_s);
  }
  return most;
}

double Limited(double rate, double share) {
  return share > 0 ? std::min(rate, share) : rate;
}

// [level]: the device's share of ports and groups, in bytes per second, if all workers
// read at once, each from another part of the group; 0: no limit.
std::vector<double> SharesOfLinks(const Machine& machine, int number, int workers) {
  std::vector<double> shares;
  int below = 1;
  for (size_t level = 0; level < machine.links.size(); ++level) {
    const LinkLevel& link = machine.LinkOf(number, static_cast<int>(level));
    double share = link.port_bytes_per_s / std::min(below, workers);
    const double of_group = link.group_bytes_per_s / std::min(link.devices, workers);
    if (of_group > 0) share = share > 0 ? std::min(share, of_group) : of_group;
    shares.push_back(share);
    below = link.devices;
  }
  return shares;
}

}  // namespace

LinkRates::LinkRates(const Machine& machine, int workers) : machine_(machine) {
  for (int worker = 0; worker < workers; ++worker) {
    const bool is_new =
        kinds_.empty() || machine.KindOf(kinds_.back()) != machine.KindOf(worker);
    if (!is_new) continue;
    kinds_.push_back(worker);
    share_.push_back(SharesOfLinks(machine, worker, workers));
  }
}

double LinkRates::Most(int level) const {
  double most = std::numeric_limits<double>::infinity();
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    const LinkLevel& link = machine_.LinkOf(kinds_[kind], level);
    most = std::min(most, Limited(MostPerSecond(link), share_[kind][level]));
  }
  return most;
}

double LinkRates::Seconds(int level, double bytes, double copies) const {
  double latency = 0;
  double rate = std::numeric_limits<double>::infinity();
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    const LinkLevel& link = machine_.LinkOf(kinds_[kind], level);
    latency = std::max(latency, link.latency_s);
    rate = std::min(rate, Limited(link.bytes_per_s.At(bytes), share_[kind][level]));
  }
  return copies * (latency + bytes / rate);
}

}  // namespace tofu
