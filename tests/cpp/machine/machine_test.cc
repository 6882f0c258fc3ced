#include "machine/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/example_machine.h"

namespace tofu {
namespace {

constexpr char kFile[] = R"({
  "format": "tofu-machine", "version": 1, "name": "two hosts", "sources": ["a data sheet"],
  "measured": false,
  "device": {"kind": "gpu", "count": 8, "memory_bytes": 1000, "launch_s": 0.5,
             "synchronize_s": 0.25, "threads": 2, "copy_threads": 3, "segments": true},
  "host": {"cores": 4, "push_s": 0.125, "speed_at_once": [1, 0.5]},
  "operators": [
    {"kind": "product", "flops_per_s": [[10, 100], [1000, 10000]], "bytes_per_s": 2},
    {"kind": "product", "op": "dot", "flops_per_s": 7},
    {"kind": "convolution", "flops_per_s": 5}, {"kind": "reduction", "bytes_per_s": 5},
    {"kind": "elementwise", "bytes_per_s": 5}, {"kind": "movement", "bytes_per_s": 5},
    {"kind": "other", "bytes_per_s": 5},
    {"kind": "other", "op": "rnn", "flops_per_byte": 2,
     "calls": [[100, 50, 2], [100, 450, 8], [10000, 450, 4]]},
    {"kind": "elementwise", "op": "tanh", "bytes_per_s": 5}],
  "links": [
    {"name": "bus", "devices": 2, "latency_s": 0, "bytes_per_s": 100},
    {"name": "host", "devices": 4, "latency_s": 0, "bytes_per_s": 50,
     "port_bytes_per_s": 60, "group_bytes_per_s": null},
    {"name": "network", "devices": 8, "latency_s": 1, "bytes_per_s": 10,
     "group_bytes_per_s": 20}]})";

// The file with one text replaced.
std::string Damaged(const std::string& text, const std::string& by) {
  std::string file = kFile;
  const size_t at = file.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  return file.replace(at, text.size(), by);
}

TEST(Machine, ReadsAFile) {
  const Machine machine = ReadMachine(kFile, "machine file a.json");
  EXPECT_EQ(machine.name, "two hosts");
  EXPECT_EQ(machine.sources.size(), 1u);
  EXPECT_FALSE(machine.measured);
  EXPECT_TRUE(machine.device.is_gpu);
  EXPECT_EQ(machine.device.count, 8);
  EXPECT_EQ(machine.device.memory_bytes, 1000);
  EXPECT_EQ(machine.device.launch_s, 0.5);
  EXPECT_EQ(machine.device.synchronize_s, 0.25);
  EXPECT_EQ(machine.device.threads, 2);
  EXPECT_EQ(machine.device.copy_threads, 3);
  EXPECT_TRUE(machine.device.has_segments);
  EXPECT_EQ(machine.host.push_s, 0.125);
  EXPECT_EQ(machine.links[1].port_bytes_per_s, 60);
  EXPECT_EQ(machine.links[1].group_bytes_per_s, 0);
  EXPECT_EQ(machine.links[2].group_bytes_per_s, 20);
  EXPECT_EQ(machine.links[2].latency_s, 1);
}

// Two kinds of devices; the second has operators of the machine and slower links.
std::string Mixed() {
  const std::string one =
      R"("device": {"kind": "gpu", "count": 8, "memory_bytes": 1000,)";
  const std::string figures = R"( "launch_s": 0.5,
             "synchronize_s": 0.25, "threads": 2, "copy_threads": 3, "segments": true})";
  std::string file = Damaged(one + figures, "DEVICES");
  return file.replace(
      file.find("DEVICES"), 7,
      R"("tile_multiple": 8, "devices": [
          {"name": "fast", "kind": "gpu", "count": 6, "memory_bytes": 1000,)" +
          figures + R"(, {"name": "slow", "kind": "gpu", "count": 2, "memory_bytes": 10,
           "links": [{"name": "network", "latency_s": 3, "port_bytes_per_s": 4}],
           "operators": [
             {"kind": "product", "flops_per_s": 1}, {"kind": "convolution", "flops_per_s": 1},
             {"kind": "reduction", "bytes_per_s": 1},
             {"kind": "elementwise", "bytes_per_s": 1},
             {"kind": "movement", "bytes_per_s": 1}, {"kind": "other", "bytes_per_s": 1}],)" +
          figures + "]");
}

TEST(Machine, MayMixKindsOfDevices) {
  const Machine machine = ReadMachine(Mixed(), "");
  EXPECT_EQ(machine.device.count, 8);
  EXPECT_EQ(machine.tile_multiple, 8);
  ASSERT_EQ(machine.kinds.size(), 2u);
  for (int number = 0; number < 8; ++number) {
    const bool is_slow = number >= 6;
    EXPECT_EQ(machine.KindOf(number), is_slow ? 1u : 0u);
    EXPECT_EQ(machine.DeviceOf(number).memory_bytes, is_slow ? 10 : 1000);
    EXPECT_EQ(ComputeSeconds(machine, "x", {OperatorKind::kReduction, 0, 10}, number),
              is_slow ? 10 : 2);
    EXPECT_EQ(machine.LinkOf(number, 2).latency_s, is_slow ? 3 : 1);
    EXPECT_EQ(machine.LinkOf(number, 2).port_bytes_per_s, is_slow ? 4 : 0);
    EXPECT_EQ(machine.LinkOf(number, 1).port_bytes_per_s, 60);
    EXPECT_EQ(machine.LinkOf(number, 2).group_bytes_per_s, 20);
  }
  const auto error_after = [](const std::string& text, const std::string& by) {
    std::string file = Mixed();
    file.replace(file.find(text), text.size(), by);
    try {
      ReadMachine(file, "");
    } catch (const MachineError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error_after(R"("slow", "kind": "gpu")", R"("slow", "kind": "cpu")")
                .find("devices[1].kind: found \"cpu\", expected the same"),
            std::string::npos);
  EXPECT_NE(error_after(R"({"name": "network", "latency_s": 3)", R"({"name": "bos")")
                .find("devices[1].links[0].name: found \"bos\", expected the name of"),
            std::string::npos);
  EXPECT_NE(error_after(R"("count": 2)", R"("count": 3)").find("all 9 devices"),
            std::string::npos);
}

TEST(Machine, NamesTheDamagedPlace) {
  const struct {
    const char* text;
    const char* by;
    const char* complaint;
  } cases[] = {
      {"\"tofu-machine\"", "\"tofu-plan\"",
       "format: found \"tofu-plan\", expected \"tofu-machine\""},
      {"\"version\": 1", "\"version\": 2", "version: found 2, expected version 1"},
      {"\"gpu\"", "\"tpu\"", "device.kind: found \"tpu\", expected \"gpu\" or \"cpu\""},
      {"\"count\": 8", "\"count\": 0", "device.count: found 0"},
      {"\"launch_s\": 0.5", "\"launch_s\": -1",
       "device.launch_s: found -1, expected a number of seconds"},
      {"\"segments\": true", "\"segments\": 1", "device.segments: found 1"},
      {"[1, 0.5]", "[]", "host.speed_at_once: found an array of 0"},
      {"[10, 100]", "[10]",
       "operators[0].flops_per_s[0]: found an array of 1, expected [amount, rate]"},
      {"[1000, 10000]", "[9, 10000]",
       "flops_per_s[1][0]: found 9, expected an amount above the one before"},
      {"10000]]", "0]]", "flops_per_s[1][1]: found 0, expected a rate"},
      {"\"reduction\"", "\"reductoin\"",
       "operators[3].kind: found \"reductoin\", expected product"},
      {"\"kind\": \"movement\", \"bytes", "\"kind\": \"other\", \"bytes",
       "for the kind \"movement\""},
      {"[100, 50, 2]", "[100, 2]",
       "operators[7].calls[0]: found an array of 2, expected [FLOPs, bytes, seconds]"},
      {"[100, 50, 2]", "[-1, 50, 2]",
       "calls[0][0]: found -1, expected a number of FLOPs"},
      {"[100, 50, 2]", "[100, 0, 2]", "calls[0][1]: found 0, expected a number of bytes"},
      {"[100, 50, 2]", "[100, 50, 0]",
       "calls[0][2]: found 0, expected a number of seconds above 0"},
      {"\"flops_per_byte\": 2", "\"flops_per_byte\": 0",
       "operators[7].flops_per_byte: found 0, expected how many FLOPs a byte counts as"},
      {"\"flops_per_byte\": 2,", "", "expected the key \"flops_per_byte\""},
      {"\"op\": \"tanh\", \"bytes_per_s\": 5", "\"op\": \"tanh\"",
       "operators[8]: found an object, expected flops_per_s, bytes_per_s or both, or "
       "calls"},
      {"\"devices\": 4", "\"devices\": 3",
       "links[1].devices: found 3, expected a multiple of the 2"},
      {"\"devices\": 8", "\"devices\": 4",
       "links[2].devices: found 4, expected a multiple"},
      {"\"count\": 8", "\"count\": 9",
       "links: found an array of 3, expected levels whose last one links all 9"},
      {"\"memory_bytes\": 1000, ", "",
       "device: found an object, expected the key \"memory_bytes\""},
      {"{\n", "", "not JSON"},
  };
  for (const auto& [text, by, complaint] : cases) {
    try {
      ReadMachine(Damaged(text, by), "machine file a.json");
      ADD_FAILURE() << "no error after " << text << " became " << by;
    } catch (const MachineError& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.rfind("machine file a.json", 0), 0u) << what;
      EXPECT_NE(what.find(complaint), std::string::npos)
          << what << "\nexpected: " << complaint;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

TEST(Machine, RatesAreGeometricBetweenPointsAndConstantAbove) {
  const RateTable table = ReadMachine(kFile, "").operators[0].flops_per_s;
  EXPECT_DOUBLE_EQ(table.At(1), 10);  // takes as long as 10: 0.1 s
  EXPECT_DOUBLE_EQ(table.At(10), 100);
  EXPECT_NEAR(table.At(100), 1000, 1e-9);
  EXPECT_DOUBLE_EQ(table.At(1000), 10000);
  EXPECT_DOUBLE_EQ(table.At(1e9), 10000);
}

TEST(Machine, AnOperatorTakesTheLongerOfArithmeticAndMemory) {
  const Machine machine = ReadMachine(kFile, "");
  EXPECT_DOUBLE_EQ(ComputeSeconds(machine, "sum", {OperatorKind::kProduct, 1000, 1}),
                   0.5);
  EXPECT_DOUBLE_EQ(ComputeSeconds(machine, "x", {OperatorKind::kProduct, 1000, 8}), 4);
  EXPECT_DOUBLE_EQ(ComputeSeconds(machine, "x", {OperatorKind::kProduct, 10000, 1}), 1);
  // Its own rates; no bandwidth is given for it.
  EXPECT_DOUBLE_EQ(ComputeSeconds(machine, "dot", {OperatorKind::kProduct, 14, 1e9}), 2);
  EXPECT_DOUBLE_EQ(ComputeSeconds(machine, "dot", {OperatorKind::kOther, 14, 10}), 2);
}

TEST(Machine, ACallTakesWhatItsNeighboursTakeForTheirFlopsAndBytes) {
  const Machine machine = ReadMachine(kFile, "");
  const auto seconds = [&](double flops, double bytes) {
    return ComputeSeconds(machine, "rnn", {OperatorKind::kOther, flops, bytes});
  };
  // Measured calls take the measured time; equal FLOPs or bytes alone do not decide.
  EXPECT_NEAR(seconds(100, 50), 2, 0.01);
  EXPECT_NEAR(seconds(100, 450), 8, 0.01);
  EXPECT_NEAR(seconds(10000, 450), 4, 0.01);
  // Half way between calls of 200 in 2 s and 1000 in 8 s: 400 at 111.8 per second. The
  // third is too far off to change much.
  EXPECT_NEAR(seconds(100, 150), 400 / std::sqrt(100.0 * 125), 0.1);
  // A call nearest to the third one takes its time in proportion.
  EXPECT_NEAR(seconds(20000, 450), 4 * 20900 / 10900.0, 0.15);
  // Nothing takes less than the smallest amount.
  EXPECT_NEAR(seconds(90, 45), 2, 0.02);
}

TEST(Machine, TheInnermostCommonGroupLinksTwoDevices) {
  const Machine machine = ReadMachine(kFile, "");
  EXPECT_EQ(machine.LevelBetween(0, 1), 0);
  EXPECT_EQ(machine.LevelBetween(1, 2), 1);
  EXPECT_EQ(machine.LevelBetween(3, 0), 1);
  EXPECT_EQ(machine.LevelBetween(3, 4), 2);
  EXPECT_EQ(machine.LevelBetween(6, 7), 0);
}

TEST(Machine, ThreadsShareTheCores) {
  const Machine machine = ReadMachine(kFile, "");  // four cores
  EXPECT_DOUBLE_EQ(machine.HostSpeed(0), 1);
  EXPECT_DOUBLE_EQ(machine.HostSpeed(1), 1);
  EXPECT_DOUBLE_EQ(machine.HostSpeed(2), 0.5);
  EXPECT_DOUBLE_EQ(machine.HostSpeed(4), 0.5);
  EXPECT_DOUBLE_EQ(machine.HostSpeed(8), 0.25);
}

}  // namespace
}  // namespace tofu
