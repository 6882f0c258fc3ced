// Reads a machine file.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "machine/machine.h"

namespace tofu {
namespace {

constexpr char kMachineFormat[] = "tofu-machine";
constexpr char kMachineHint[] =
    "docs/formats.md describes machine files, tofu calibrate writes one";
constexpr int kMostDevices = 1 << 14;
constexpr int kMostThreads = 1 << 10;
constexpr int64_t kMostBytes = int64_t{1} << 50;

double Positive(const JsonCursor& at, const char* expected) {
  const double value = at.IsNumber() ? at.Number() : 0;
  if (value <= 0 || value >= 1e30) at.Fail(expected);
  return value;
}

double Seconds(const JsonCursor& at) {
  const double value = at.IsNumber() ? at.Number() : -1;
  if (value < 0 || value >= 1e6) at.Fail("a number of seconds, 0 or more");
  return value;
}

// Reads [[amount, rate], ...], or one rate for all amounts.
RateTable ReadRates(const JsonCursor& at) {
  constexpr char kRate[] = "a rate per second above 0, or [[amount, rate], ...]";
  if (at.IsNumber()) return RateTable({{1, Positive(at, kRate)}});
  std::vector<RateTable::Point> points;
  if (at.Size() == 0) at.Fail(kRate);
  for (int i = 0; i < at.Size(); ++i) {
    const JsonCursor point = at.At(i);
    if (point.Size() != 2) point.Fail("[amount, rate]");
    const double amount = Positive(point.At(0), "an amount above 0");
    if (i > 0 && amount <= points.back().amount) {
      point.At(0).Fail("an amount above the one before it");
    }
    points.push_back({amount, Positive(point.At(1), "a rate per second above 0")});
  }
  return RateTable(std::move(points));
}

// Reads [[FLOPs, bytes, seconds], ...].
CallTable ReadCalls(const JsonCursor& at, double flops_per_byte) {
  std::vector<CallTable::Call> calls;
  if (at.Size() == 0) at.Fail("[[FLOPs, bytes, seconds], ...]");
  for (int i = 0; i < at.Size(); ++i) {
    const JsonCursor item = at.At(i);
    if (item.Size() != 3) item.Fail("[FLOPs, bytes, seconds]");
    const double flops = item.At(0).IsNumber() ? item.At(0).Number() : -1;
    if (flops < 0 || flops >= 1e30) item.At(0).Fail("a number of FLOPs, 0 or more");
    calls.push_back({flops, Positive(item.At(1), "a number of bytes above 0"),
                     Positive(item.At(2), "a number of seconds above 0")});
  }
  return {calls, flops_per_byte};
}

double OptionalRate(const JsonCursor& at, const char* key) {
  if (!at.Has(key) || at.At(key).IsNull()) return 0;
  return Positive(at.At(key), "a rate per second above 0, or null for no limit");
}

Device ReadDevice(const JsonCursor& at) {
  Device device;
  const std::string kind(at.At("kind").String());
  if (kind != "gpu" && kind != "cpu") at.At("kind").Fail("\"gpu\" or \"cpu\"");
  device.is_gpu = kind == "gpu";
  device.count = static_cast<int>(at.At("count").Int(1, kMostDevices));
  device.memory_bytes = at.At("memory_bytes").Int(1, kMostBytes);
  device.launch_s = Seconds(at.At("launch_s"));
  device.synchronize_s = Seconds(at.At("synchronize_s"));
  device.threads = static_cast<int>(at.At("threads").Int(1, kMostThreads));
  device.copy_threads = static_cast<int>(at.At("copy_threads").Int(1, kMostThreads));
  device.has_segments = at.At("segments").Bool();
  return device;
}

Host ReadHost(const JsonCursor& at) {
  Host host;
  host.cores = static_cast<int>(at.At("cores").Int(1, kMostThreads));
  host.push_s = Seconds(at.At("push_s"));
  const JsonCursor speeds = at.At("speed_at_once");
  host.speed_at_once.clear();
  if (speeds.Size() == 0) speeds.Fail("the speed of one thread, of two, ...");
  for (int i = 0; i < speeds.Size(); ++i) {
    constexpr char kSpeed[] = "a speed above 0, 1 for one thread alone";
    host.speed_at_once.push_back(Positive(speeds.At(i), kSpeed));
  }
  return host;
}

std::vector<OperatorRates> ReadOperators(const JsonCursor& at) {
  std::vector<OperatorRates> operators;
  std::vector<char> whole(kNumOperatorKinds, 0);
  for (int i = 0; i < at.Size(); ++i) {
    const JsonCursor item = at.At(i);
    OperatorRates rates;
    const std::string kind(item.At("kind").String());
    bool known = false;
    for (int k = 0; k < kNumOperatorKinds; ++k) {
      known = known || kind == KindName(static_cast<OperatorKind>(k));
    }
    if (!known) {
      item.At("kind").Fail(
          "product, convolution, reduction, elementwise, movement or other");
    }
    rates.kind = ParseKind(kind);
    if (item.Has("op")) rates.op = item.At("op").String();
    if (item.Has("flops_per_s")) rates.flops_per_s = ReadRates(item.At("flops_per_s"));
    if (item.Has("bytes_per_s")) rates.bytes_per_s = ReadRates(item.At("bytes_per_s"));
    if (item.Has("calls")) {
      constexpr char kEach[] = "how many FLOPs a byte counts as, above 0";
      rates.calls =
          ReadCalls(item.At("calls"), Positive(item.At("flops_per_byte"), kEach));
    }
    if (rates.flops_per_s.empty() && rates.bytes_per_s.empty() && rates.calls.empty()) {
      item.Fail("flops_per_s, bytes_per_s or both, or calls");
    }
    if (rates.op.empty()) whole[static_cast<size_t>(rates.kind)] = 1;
    operators.push_back(std::move(rates));
  }
  for (int kind = 0; kind < kNumOperatorKinds; ++kind) {
    if (whole[kind]) continue;
    at.Fail("an entry without \"op\" for the kind \"" +
            std::string(KindName(static_cast<OperatorKind>(kind))) + "\"");
  }
  return operators;
}

std::vector<LinkLevel> ReadLinks(const JsonCursor& at, int devices) {
  std::vector<LinkLevel> links;
  for (int i = 0; i < at.Size(); ++i) {
    const JsonCursor item = at.At(i);
    LinkLevel level;
    level.name = item.At("name").String();
    level.devices = static_cast<int>(item.At("devices").Int(1, kMostDevices));
    const int below = links.empty() ? 1 : links.back().devices;
    if (level.devices % below != 0 || (!links.empty() && level.devices == below)) {
      item.At("devices").Fail("a multiple of the " + std::to_string(below) +
                              " devices of the level before it");
    }
    level.latency_s = Seconds(item.At("latency_s"));
    level.bytes_per_s = ReadRates(item.At("bytes_per_s"));
    level.port_bytes_per_s = OptionalRate(item, "port_bytes_per_s");
    level.group_bytes_per_s = OptionalRate(item, "group_bytes_per_s");
    links.push_back(std::move(level));
  }
  if (links.empty() || links.back().devices < devices) {
    at.Fail("levels whose last one links all " + std::to_string(devices) + " devices");
  }
  return links;
}

// Reads the machine's levels, with a device kind's own figures.
std::vector<LinkLevel> ReadOwnLinks(const JsonCursor& at, std::vector<LinkLevel> links) {
  for (int i = 0; i < at.Size(); ++i) {
    const JsonCursor item = at.At(i);
    const auto level = std::find_if(
        links.begin(), links.end(),
        [&](const LinkLevel& link) { return link.name == item.At("name").String(); });
    if (level == links.end())
      item.At("name").Fail("the name of one of the machine's links");
    if (item.Has("latency_s")) level->latency_s = Seconds(item.At("latency_s"));
    if (item.Has("bytes_per_s")) level->bytes_per_s = ReadRates(item.At("bytes_per_s"));
    if (item.Has("port_bytes_per_s")) {
      level->port_bytes_per_s = OptionalRate(item, "port_bytes_per_s");
    }
    if (item.Has("group_bytes_per_s")) {
      level->group_bytes_per_s = OptionalRate(item, "group_bytes_per_s");
    }
  }
  return links;
}

// Reads the devices of a mixed machine.
void ReadKinds(const JsonCursor& root, Machine* machine) {
  const JsonCursor devices = root.At("devices");
  if (devices.Size() == 0) devices.Fail("at least one kind of devices");
  int64_t count = 0;
  for (int i = 0; i < devices.Size(); ++i) {
    const JsonCursor item = devices.At(i);
    DeviceKind& kind = machine->kinds.emplace_back();
    kind.name = item.At("name").String();
    kind.device = ReadDevice(item);
    if (kind.device.is_gpu != machine->kinds[0].device.is_gpu) {
      item.At("kind").Fail("the same as that of the first devices");
    }
    count += kind.device.count;
    if (count > kMostDevices) {
      devices.Fail("at most " + std::to_string(kMostDevices) + " devices in all");
    }
    kind.operators = ReadOperators((item.Has("operators") ? item : root).At("operators"));
  }
  const std::vector<LinkLevel> links =
      ReadLinks(root.At("links"), static_cast<int>(count));
  for (int i = 0; i < devices.Size(); ++i) {
    const JsonCursor item = devices.At(i);
    machine->kinds[i].links =
        item.Has("links") ? ReadOwnLinks(item.At("links"), links) : links;
  }
  const DeviceKind& first = machine->kinds[0];
  machine->device = first.device;
  machine->device.count = static_cast<int>(count);
  machine->operators = first.operators;
  machine->links = first.links;
}

Machine Read(const JsonCursor& root) {
  if (root.At("format").String() != kMachineFormat) {
    root.At("format").Fail("\"" + std::string(kMachineFormat) + "\"");
  }
  if (root.At("version").Int(0, 1 << 20) != kMachineVersion) {
    root.At("version").Fail("version " + std::to_string(kMachineVersion));
  }
  Machine machine;
  machine.name = root.At("name").String();
  const JsonCursor sources = root.At("sources");
  for (int i = 0; i < sources.Size(); ++i) {
    machine.sources.emplace_back(sources.At(i).String());
  }
  machine.measured = root.At("measured").Bool();
  machine.host = ReadHost(root.At("host"));
  if (root.Has("tile_multiple")) {
    machine.tile_multiple = static_cast<int>(root.At("tile_multiple").Int(1, 1 << 20));
  }
  if (root.Has("devices")) {
    ReadKinds(root, &machine);
    return machine;
  }
  machine.device = ReadDevice(root.At("device"));
  machine.operators = ReadOperators(root.At("operators"));
  machine.links = ReadLinks(root.At("links"), machine.device.count);
  return machine;
}

}  // namespace

Machine ReadMachine(const std::string& json, const std::string& where) {
  try {
    const JsonDocument document = ParseJson(json, Blame::kGraph, where, kMachineHint);
    return Read(JsonCursor(document));
  } catch (const UserError& error) {
    throw MachineError(error.what());
  }
}

}  // namespace tofu
