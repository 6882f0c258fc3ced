#include "machine/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/error.h"

namespace tofu {
namespace {

constexpr std::array<const char*, kNumOperatorKinds> kKindNames = {
    "product", "convolution", "reduction", "elementwise", "movement", "other"};

// The logarithm of an amount; amounts below 1 count as 1.
double LogOf(double amount) { return std::log(std::max(amount, 1.0)); }

}  // namespace

const char* KindName(OperatorKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

OperatorKind ParseKind(const std::string& name) {
  const auto found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) {
    std::string known;
    for (const char* kind : kKindNames)
      known += (known.empty() ? "" : ", ") + std::string(kind);
    throw MachineError("operator kind: found \"" + name + "\", expected one of " + known);
  }
  return static_cast<OperatorKind>(found - kKindNames.begin());
}

double RateTable::At(double amount) const {
  TOFU_CHECK(!points_.empty()) << "a rate of an empty table";
  const auto above = std::lower_bound(
      points_.begin(), points_.end(), amount,
      [](const Point& point, double sought) { return point.amount < sought; });
  if (above == points_.begin()) return above->per_s * amount / above->amount;
  if (above == points_.end()) return points_.back().per_s;
  const Point& low = *std::prev(above);
  const double share =
      std::log(amount / low.amount) / std::log(above->amount / low.amount);
  return low.per_s * std::pow(above->per_s / low.per_s, share);
}

CallTable::CallTable(const std::vector<Call>& calls, double flops_per_byte)
    : flops_per_byte_(flops_per_byte) {
  for (const Call& call : calls) {
    const double amount = call.flops + flops_per_byte * call.bytes;
    known_.push_back(
        {LogOf(call.flops), LogOf(call.bytes), std::log(amount / call.seconds)});
    least_amount_ = known_.size() == 1 ? amount : std::min(least_amount_, amount);
  }
}

double CallTable::Seconds(double flops, double bytes) const {
  TOFU_CHECK(!known_.empty()) << "the time of an empty table";
  // Calls this near count as one, measured several times.
  constexpr double kNear = 1e-3;
  const double log_flops = LogOf(flops);
  const double log_bytes = LogOf(bytes);
  double weights = 0;
  double sum = 0;
  for (const Known& call : known_) {
    const double x = call.flops - log_flops;
    const double y = call.bytes - log_bytes;
    const double near = 1 / (x * x + y * y + kNear);
    weights += near * near;
    sum += near * near * call.per_s;
  }
  const double amount = std::max(flops + flops_per_byte_ * bytes, least_amount_);
  return amount / std::exp(sum / weights);
}

int Machine::LevelBetween(int a, int b) const {
  int level = 0;
  const int last = static_cast<int>(links.size()) - 1;
  while (level < last && a / links[level].devices != b / links[level].devices) ++level;
  return level;
}

size_t Machine::KindOf(int number) const {
  size_t kind = 0;
  while (kind + 1 < kinds.size() && number >= kinds[kind].device.count) {
    number -= kinds[kind++].device.count;
  }
  return kind;
}

const Device& Machine::DeviceOf(int number) const {
  return kinds.empty() ? device : kinds[KindOf(number)].device;
}

const LinkLevel& Machine::LinkOf(int number, int level) const {
  return kinds.empty() ? links[level] : kinds[KindOf(number)].links[level];
}

const OperatorRates& Machine::Rates(OperatorKind kind, const std::string& op,
                                    int number) const {
  const OperatorRates* general = nullptr;
  for (const OperatorRates& rates :
       kinds.empty() ? operators : kinds[KindOf(number)].operators) {
    if (rates.kind != kind) continue;
    if (!op.empty() && rates.op == op) return rates;
    if (rates.op.empty()) general = &rates;
  }
  TOFU_CHECK(general != nullptr) << "no rates of " << KindName(kind);
  return *general;
}

double Machine::HostSpeed(int threads) const {
  const size_t known = host.speed_at_once.size();
  const size_t n = static_cast<size_t>(std::max(threads, 1));
  const double speed = host.speed_at_once[std::min(n, known) - 1];
  return threads > host.cores ? speed * host.cores / threads : speed;
}

double ComputeSeconds(const Machine& machine, const std::string& op, const Work& work,
                      int number) {
  const OperatorRates& rates = machine.Rates(work.kind, op, number);
  if (!rates.calls.empty()) return rates.calls.Seconds(work.flops, work.bytes);
  double seconds = 0;
  if (work.flops > 0 && !rates.flops_per_s.empty()) {
    seconds = work.flops / rates.flops_per_s.At(work.flops);
  }
  if (work.bytes > 0 && !rates.bytes_per_s.empty()) {
    seconds = std::max(seconds, work.bytes / rates.bytes_per_s.At(work.bytes));
  }
  return seconds;
}

}  // namespace tofu
