// Describes the hardware that a training step runs on: the speed of each kind of
// operator, the host's work for each operator, the links between devices, and their
// memory. Devices may differ. docs/formats.md documents the JSON form. This file knows no
// graph.
//
// Errors: MachineError for text that is not a machine; the message says where in the
//         document, what was found and what was expected.
#ifndef TOFU_MACHINE_MACHINE_H_
#define TOFU_MACHINE_MACHINE_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tofu {

constexpr int kMachineVersion = 1;

class MachineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The kind of an operator's work, from its description (python/tofu/analysis/work.py). An
// operator without a description is kOther.
enum class OperatorKind {
  kProduct,      // sums of products, such as a matrix product
  kConvolution,  // the same over windows
  kReduction,    // other reductions
  kElementwise,
  kMovement,  // elements only move
  kOther,
};
constexpr int kNumOperatorKinds = 6;
const char* KindName(OperatorKind kind);
// Throws MachineError for another name.
OperatorKind ParseKind(const std::string& name);

// A rate that depends on the amount: given at some amounts, geometric in between, and
// constant above. A smaller amount takes as long as the smallest one.
class RateTable {
 public:
  struct Point {
    double amount = 0;
    double per_s = 0;
  };

  RateTable() = default;
  // `points` by increasing amount.
  explicit RateTable(std::vector<Point> points) : points_(std::move(points)) {}

  bool empty() const { return points_.empty(); }
  const std::vector<Point>& points() const { return points_; }
  double At(double amount) const;

 private:
  std::vector<Point> points_;
};

// Measured calls of operators, by their FLOPs and bytes: at equal FLOPs, an operator with
// large weights takes far longer than one with small ones. A call's amount is its FLOPs
// plus a fixed number for each byte. Another call's rate is the geometric mean of the
// measured amounts per second, weighted by 1 / d^4 for a distance d of the logarithms of
// FLOPs and bytes. A smaller amount takes as long as the smallest one.
class CallTable {
 public:
  struct Call {
    double flops = 0;
    double bytes = 0;
    double seconds = 0;
  };

  CallTable() = default;
  CallTable(const std::vector<Call>& calls, double flops_per_byte);

  bool empty() const { return known_.empty(); }
  double Seconds(double flops, double bytes) const;

 private:
  // The logarithms of a measured call.
  struct Known {
    double flops = 0;
    double bytes = 0;
    double per_s = 0;
  };

  std::vector<Known> known_;
  double flops_per_byte_ = 0;
  double least_amount_ = 0;
};

// The rates of a kind of operator, or of one operator of a kind.
struct OperatorRates {
  OperatorKind kind = OperatorKind::kOther;
  std::string op;         // empty: all operators of the kind without rates of their own
  RateTable flops_per_s;  // by FLOPs; empty: arithmetic takes no time
  RateTable bytes_per_s;  // by bytes read and written
  CallTable calls;        // take the place of both, unless empty
};

struct Device {
  bool is_gpu = false;
  int count = 1;
  int64_t memory_bytes = 0;
  double launch_s = 0;        // for each operator, on the thread that runs it
  double synchronize_s = 0;   // the same for each operator, or segment of operators
  int threads = 1;            // operators of one device that run at a time
  int copy_threads = 1;       // copies that leave a device and run at a time
  bool has_segments = false;  // neighbouring operators of a device are scheduled as one
};

struct Host {
  int cores = 1;
  double push_s = 0;  // for each operator, on the script's thread
  // The speed of each of n threads compared with one alone: element n - 1, or the last
  // one. More threads than cores share the cores.
  std::vector<double> speed_at_once = {1};
};

// A level of the hierarchy, innermost first. Two devices in the same group of this level,
// but not of a level below, are linked by it.
struct LinkLevel {
  std::string name;
  int devices = 1;        // in a group
  double latency_s = 0;   // of each copy
  RateTable bytes_per_s;  // of one copy alone, by bytes
  // Bandwidth shared by all copies that leave or enter a group of the level below; 0: no
  // limit.
  double port_bytes_per_s = 0;
  double group_bytes_per_s = 0;  // shared by all copies within a group; 0: no limit
};

// Consecutive devices of a mixed machine that are alike.
struct DeviceKind {
  std::string name;
  Device device;
  std::vector<OperatorRates> operators;
  std::vector<LinkLevel> links;  // the machine's levels, at these devices' speed
};

struct Machine {
  std::string name;
  std::vector<std::string> sources;  // of the figures
  bool measured = false;             // by `tofu calibrate`, not from data sheets
  Device device;                     // of the first kind; its `count` is of all kinds
  Host host;
  std::vector<OperatorRates> operators;  // of the first kind
  std::vector<LinkLevel> links;          // the same
  std::vector<DeviceKind> kinds;         // empty: all devices are alike
  int tile_multiple = 1;                 // on which bounds of tiles lie (division.h)

  // The number of the kind of a device.
  size_t KindOf(int number) const;
  const Device& DeviceOf(int number) const;
  // A level of links at a device's speed.
  const LinkLevel& LinkOf(int number, int level) const;
  // The level that links two devices.
  int LevelBetween(int a, int b) const;
  const OperatorRates& Rates(OperatorKind kind, const std::string& op,
                             int number = 0) const;
  // The speed of each of `threads` threads, compared with one alone.
  double HostSpeed(int threads) const;
};

// The work of one operator.
struct Work {
  OperatorKind kind = OperatorKind::kOther;
  double flops = 0;
  double bytes = 0;  // read and written
};

// The time that a device needs for an operator, without launching it.
double ComputeSeconds(const Machine& machine, const std::string& op, const Work& work,
                      int number = 0);

// `where` names the document in errors: "machine file p2.json".
Machine ReadMachine(const std::string& json, const std::string& where);

}  // namespace tofu

#endif  // TOFU_MACHINE_MACHINE_H_
