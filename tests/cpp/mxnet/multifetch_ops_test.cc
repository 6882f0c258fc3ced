// The operator of MultiFetch on CPUs, called like MXNet does, also from several threads
// at once, which ThreadSanitizer checks (make test-tsan).
#include "mxnet/multifetch_ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" const char* TofuRunMultiFetch(const char* spec, const void* const* sources,
                                         void* region);
extern "C" void TofuObserveFetches(void (*observer)());

namespace tofu {
namespace {

constexpr int kFloat32 = 0;
// Six numbers, of two tiles.
constexpr char kSpec[] = "dtype=0 shape=6 sources=4;3; pieces=0@0>0:4;1@1>4:2";

const TofuOp& Op() { return *FindOp(0); }

// One attribute.
struct Attribute {
  Attribute(const char* name, std::string text) : key(name), value(std::move(text)) {}
  OpAttrs attrs() {
    values[0] = value.c_str();
    return {&key, values, 1};
  }
  const char* key;
  const std::string value;
  const char* values[1];
};

TEST(MultiFetchOps, AreFoundByNumberAndByIdentity) {
  EXPECT_STREQ(Op().name, "_tofu_multifetch");
  EXPECT_EQ(FindOp(Op().identity), &Op());
  EXPECT_EQ(FindOp(1), nullptr);
  EXPECT_EQ(FindOp([] {}), nullptr);
}

TEST(MultiFetchOps, TheSpecificationSaysHowManyInputsAndOutputsThereAre) {
  const auto counts = [](Attribute attribute) {
    int num_inputs = 0;
    int num_outputs = 0;
    Op().parse(attribute.attrs(), &num_inputs, &num_outputs);
    return std::pair(num_inputs, num_outputs);
  };
  EXPECT_EQ(counts({"spec", kSpec}), std::pair(2, 1));
  EXPECT_EQ(counts({"spec", std::string(kSpec) + "|" + kSpec}), std::pair(4, 2));
  EXPECT_THROW(counts({"other", kSpec}), std::invalid_argument);
  EXPECT_THROW(counts({"spec", "nonsense"}), std::invalid_argument);
}

TEST(MultiFetchOps, TilesKeepTheirShapes) {
  Attribute spec("spec", kSpec);
  OpShapes shapes = {{{2, 2}, {3}}, {{}}};
  Op().infer_shapes(spec.attrs(), &shapes);
  EXPECT_EQ(shapes.inputs, (std::vector<Extents>{{2, 2}, {3}}));
  EXPECT_EQ(shapes.outputs, (std::vector<Extents>{{6}}));
  int inputs[] = {-1, -1};
  int outputs[] = {-1};
  Op().infer_dtypes(spec.attrs(), inputs, 2, outputs);
  EXPECT_EQ(std::vector<int>(inputs, inputs + 2), (std::vector<int>{kFloat32, kFloat32}));
  EXPECT_EQ(outputs[0], kFloat32);
}

int g_fetches = 0;

// One fetch assembles a region of each specification, and the observer sees it.
TEST(MultiFetchOps, AFetchAssemblesSeveralRegions) {
  Attribute spec("spec",
                 std::string("dtype=0 shape=2 sources=2; pieces=0@0>0:2|") + kSpec);
  float first[] = {8, 9};
  float second[] = {0, 1, 2, 3};
  float third[] = {4, 5, 6};
  float small[2];
  float region[6];
  void* const in[] = {first, second, third};
  void* const out[] = {small, region};
  TofuObserveFetches([] { ++g_fetches; });
  Op().compute(spec.attrs(), {in, 3, out, 2, false, 0, nullptr});
  TofuObserveFetches(nullptr);
  Op().compute(spec.attrs(), {in, 3, out, 2, false, 0, nullptr});
  EXPECT_EQ(g_fetches, 1);
  EXPECT_EQ(std::vector<float>(small, small + 2), (std::vector<float>{8, 9}));
  EXPECT_EQ(std::vector<float>(region, region + 6),
            (std::vector<float>{0, 1, 2, 3, 5, 6}));
}

// --- Threads -------------------------------------------------------------------

constexpr int kThreads = 4;

// The results of `function` on each thread.
std::vector<std::string> OnAllThreads(const std::function<std::string(int)>& function) {
  std::vector<std::string> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&function, &results, i] { results[i] = function(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::string SliceSpec(int rows, int begin) {
  const std::string size = std::to_string(rows) + ",16";
  return "dtype=0 shape=" + size + " sources=" + std::to_string(rows) +
         ",32; pieces=0@0," + std::to_string(begin) + ">0,0:" + size;
}

TEST(MultiFetchOpsThreads, ReadSpecificationsWhileOthersAddNewOnes) {
  const auto wrong = OnAllThreads([](int thread) {
    std::string problems;
    for (int round = 0; round < 200; ++round) {
      // Half of the rounds are new to all threads; some threads know the others.
      const int rows = 1 + (round % 2 == 0 ? round / 2 : 100 + 100 * thread + round);
      Attribute spec("spec", SliceSpec(rows, 0));
      OpShapes shapes = {{{}}, {{}}};
      Op().infer_shapes(spec.attrs(), &shapes);
      if (shapes.outputs[0] != Extents{rows, 16}) problems += "wrong shape ";
    }
    return problems;
  });
  for (const std::string& problem : wrong) EXPECT_EQ(problem, "");
}

TEST(MultiFetchOpsThreads, FetchFromOneTileAtOnce) {
  constexpr int kRows = 64;
  constexpr int kWidth = 32;
  std::vector<float> tile(kRows * kWidth);
  std::iota(tile.begin(), tile.end(), 0.0F);
  const auto wrong = OnAllThreads([&](int thread) {
    std::string problems;
    std::vector<float> region(kRows * kWidth / 2);
    for (int round = 0; round < 200; ++round) {
      // Some are read for the first time by several threads, most are known.
      const int begin = (round / 10 + thread % 2) % (kWidth / 2);
      const std::string spec = SliceSpec(kRows, begin);
      const void* sources[] = {tile.data()};
      const char* problem = TofuRunMultiFetch(spec.c_str(), sources, region.data());
      if (problem != nullptr) problems += problem;
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kWidth / 2; ++j) {
          if (region[i * kWidth / 2 + j] != tile[i * kWidth + begin + j]) {
            problems += "row " + std::to_string(i) + " of round " + std::to_string(round);
          }
        }
      }
    }
    return problems;
  });
  for (const std::string& problem : wrong) EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace tofu
