// The operators of MultiFetch on CPUs, called like MXNet does, also from several threads
// at once, which ThreadSanitizer checks (make test-tsan).
#include "mxnet/multifetch_ops.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/handle.h"

extern "C" const char* TofuRunMultiFetch(const char* spec, const void* const* sources,
                                         void* region);
extern "C" void TofuObserveFetches(void (*observer)(int step));

namespace tofu {
namespace {

constexpr int kFloat32 = 0;
constexpr int kInt64 = 6;
// Six numbers, of which worker 1 holds the first four.
constexpr char kSpec[] = "dtype=0 shape=6 remote=1 sources=4;3; pieces=0@0>0:4;1@1>4:2";

const TofuOp& Op(const std::string& name) {
  for (int i = 0; FindOp(i) != nullptr; ++i) {
    if (FindOp(i)->name == name) return *FindOp(i);
  }
  throw std::logic_error("no operator " + name);
}

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

void Call(const std::string& name, const std::string& spec, std::vector<void*> inputs,
          std::vector<void*> outputs) {
  Op(name).compute(Attribute("spec", spec).attrs(),
                   {inputs.data(), static_cast<int>(inputs.size()), outputs.data(),
                    static_cast<int>(outputs.size()), false, 0, nullptr});
}

TEST(MultiFetchOps, AreFoundByNumberAndByIdentity) {
  int count = 0;
  for (; FindOp(count) != nullptr; ++count) {
    EXPECT_EQ(FindOp(FindOp(count)->identity), FindOp(count));
  }
  EXPECT_EQ(count, 3);
  EXPECT_EQ(FindOp([] {}), nullptr);
}

TEST(MultiFetchOps, AttributesSayHowManyInputsAndOutputsThereAre) {
  const auto counts = [](const std::string& op, Attribute attribute) {
    int num_inputs = 0;
    int num_outputs = 0;
    Op(op).parse(attribute.attrs(), &num_inputs, &num_outputs);
    return std::pair(num_inputs, num_outputs);
  };
  EXPECT_EQ(counts("_tofu_publish", {"spec", ""}), std::pair(1, 1));
  EXPECT_EQ(counts("_tofu_multifetch", {"spec", kSpec}), std::pair(2, 2));
  EXPECT_EQ(counts("_tofu_retire", {"num_args", "5"}), std::pair(5, 1));
  EXPECT_THROW(counts("_tofu_multifetch", {"other", kSpec}), std::invalid_argument);
  EXPECT_THROW(counts("_tofu_multifetch", {"spec", "nonsense"}), std::invalid_argument);
}

TEST(MultiFetchOps, RemoteTilesComeAsHandles) {
  Attribute spec("spec", kSpec);
  OpShapes shapes = {{{1}, {}}, {{}, {}}};
  Op("_tofu_multifetch").infer_shapes(spec.attrs(), &shapes);
  EXPECT_EQ(shapes.inputs, (std::vector<Extents>{{1}, {3}}));
  EXPECT_EQ(shapes.outputs, (std::vector<Extents>{{6}, {1}}));
  int inputs[] = {-1, -1};
  int outputs[] = {-1, -1};
  Op("_tofu_multifetch").infer_dtypes(spec.attrs(), inputs, 2, outputs);
  EXPECT_EQ(std::vector<int>(inputs, inputs + 2), (std::vector<int>{kInt64, kFloat32}));
  EXPECT_EQ(std::vector<int>(outputs, outputs + 2), (std::vector<int>{kFloat32, kInt64}));
}

TEST(MultiFetchOps, ARetirementKeepsItsTilesDtype) {
  Attribute count("num_args", "3");
  int inputs[] = {kFloat32, -1, -1};
  int outputs[] = {-1};
  Op("_tofu_retire").infer_dtypes(count.attrs(), inputs, 3, outputs);
  EXPECT_EQ(std::vector<int>(inputs, inputs + 3),
            (std::vector<int>{kFloat32, kInt64, kInt64}));
  EXPECT_EQ(outputs[0], kInt64);
  OpShapes shapes = {{{4}, {1}, {1}}, {{}}};
  Op("_tofu_retire").infer_shapes(count.attrs(), &shapes);
  EXPECT_EQ(shapes.outputs, (std::vector<Extents>{{1}}));
}

TEST(MultiFetchOps, PublishFetchAndRetire) {
  float remote[] = {0, 1, 2, 3};
  float local[] = {4, 5, 6};
  int64_t handle = 0;
  int64_t acknowledgement = 7;
  int64_t token = 7;
  std::vector<float> region(6, -1);
  Call("_tofu_publish", "", {remote}, {&handle});
  EXPECT_EQ(OpenHandle(static_cast<uint64_t>(handle), 0), remote);
  Call("_tofu_multifetch", kSpec, {&handle, local}, {region.data(), &acknowledgement});
  EXPECT_EQ(region, (std::vector<float>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(acknowledgement, 0);
  Call("_tofu_retire", "", {remote, &handle, &acknowledgement}, {&token});
  EXPECT_EQ(token, 0);
}

// Two tiles are published at once; one fetch assembles a region of each, the second
// with a tile of its own.
TEST(MultiFetchOps, ABundleAssemblesSeveralRegions) {
  const std::string specs =
      std::string("dtype=0 shape=2 remote=1 sources=2; pieces=0@0>0:2|") + kSpec;
  const char* const keys[] = {"spec", "handles"};
  const char* const values[] = {specs.c_str(), "0:1@0 0:0@0"};
  const OpAttrs attrs{keys, values, 2};
  int num_inputs = 0;
  int num_outputs = 0;
  Op("_tofu_multifetch").parse(attrs, &num_inputs, &num_outputs);
  EXPECT_EQ(std::pair(num_inputs, num_outputs), std::pair(2, 3));
  OpShapes shapes = {{{2}, {}}, {}};
  Op("_tofu_multifetch").infer_shapes(attrs, &shapes);
  EXPECT_EQ(shapes.inputs, (std::vector<Extents>{{2}, {3}}));
  EXPECT_EQ(shapes.outputs, (std::vector<Extents>{{2}, {6}, {1}}));
  int dtypes[] = {-1, -1};
  int outputs[] = {-1, -1, -1};
  Op("_tofu_multifetch").infer_dtypes(attrs, dtypes, 2, outputs);
  EXPECT_EQ(std::vector<int>(outputs, outputs + 3),
            (std::vector<int>{kFloat32, kFloat32, kInt64}));

  float first[] = {0, 1, 2, 3};
  float second[] = {8, 9};
  float local[] = {4, 5, 6};
  int64_t handle[] = {0, 0};
  Attribute count("num_tiles", "2");
  Op("_tofu_publish").infer_shapes(count.attrs(), &shapes);
  EXPECT_EQ(shapes.outputs, (std::vector<Extents>{{2}}));
  Call("_tofu_publish", "", {first, second}, {handle});
  float small[2];
  float region[6];
  int64_t acknowledgement = 7;
  void* const in[] = {handle, local};
  void* const out[] = {small, region, &acknowledgement};
  Op("_tofu_multifetch").compute(attrs, {in, 2, out, 3, false, 0, nullptr});
  EXPECT_EQ(std::vector<float>(small, small + 2), (std::vector<float>{8, 9}));
  EXPECT_EQ(std::vector<float>(region, region + 6),
            (std::vector<float>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(acknowledgement, 0);
}

TEST(MultiFetchOps, ARetirementOfSeveralTilesKeepsTheirDtypes) {
  Attribute count("num_tiles", "2");
  int inputs[] = {kFloat32, 1, -1, -1};
  int outputs[] = {-1};
  Op("_tofu_retire").infer_dtypes(count.attrs(), inputs, 4, outputs);
  EXPECT_EQ(std::vector<int>(inputs, inputs + 4),
            (std::vector<int>{kFloat32, 1, kInt64, kInt64}));
}

// Calls with the attributes that partition writes.
struct Owned {
  explicit Owned(const std::string& group) : values{group.c_str()} {}
  const char* const keys[1] = {"__ctx_group__"};
  const char* const values[1];
};

std::string FetchFrom3(int64_t handle, std::vector<float>* region) {
  const char* const keys[] = {"spec", "handles", "label", "__ctx_group__"};
  const char* const values[] = {kSpec, "0:0@3", "net/dense@1/fetch", "worker1"};
  float local[] = {4, 5, 6};
  int64_t acknowledgement = 7;
  void* const in[] = {&handle, local};
  void* const out[] = {region->data(), &acknowledgement};
  try {
    Op("_tofu_multifetch").compute({keys, values, 4}, {in, 2, out, 2, false, 0, nullptr});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(MultiFetchOps, AFetchRefusesHandlesThatAreNotItsOwners) {
  float tile[] = {0, 1, 2, 3};
  int64_t handles[5];
  for (int worker = 0; worker < 5; ++worker) {
    const std::string group = "worker" + std::to_string(worker);
    const Owned owned(group);
    void* const in[] = {tile};
    void* const out[] = {&handles[worker]};
    Op("_tofu_publish")
        .compute({owned.keys, owned.values, 1}, {in, 1, out, 1, false, 0, nullptr});
  }
  std::vector<float> region(6, -1);
  const std::string begin = "MultiFetch net/dense@1/fetch on worker 1: found ";
  const std::string end =
      ", expected an address that worker 3 published; the copy of a handle between "
      "these two workers failed, use TOFU_FETCH=plain";
  EXPECT_EQ(FetchFrom3(handles[4], &region), begin + "an address of worker 4's" + end);
  EXPECT_EQ(FetchFrom3(0, &region), begin + "a null address" + end);
  EXPECT_EQ(FetchFrom3(0x3f8000003f800000, &region),
            begin + "the number 0x3f8000003f800000, which is no handle" + end);
  EXPECT_EQ(region, std::vector<float>(6, -1)) << "nothing is read";
  EXPECT_EQ(FetchFrom3(handles[3], &region), "");
  EXPECT_EQ(region, (std::vector<float>{0, 1, 2, 3, 5, 6}));
}

// The tile may have no memory, and is not read.
TEST(MultiFetchOps, ATileWithoutElementsNeedsNoAddress) {
  int64_t handle = 0;
  int64_t acknowledgement = 7;
  float region[] = {-1};
  Call("_tofu_multifetch", "dtype=0 shape=0 remote=1 sources=0; pieces=0@0>0:0",
       {&handle}, {region, &acknowledgement});
  EXPECT_EQ(acknowledgement, 0);
}

std::vector<int> g_steps;

TEST(MultiFetchOps, EveryStepIsObserved) {
  TofuObserveFetches([](int step) { g_steps.push_back(step); });
  float tile[] = {0, 1, 2, 3};
  float local[] = {4, 5, 6};
  int64_t numbers[] = {0, 0, 0};
  std::vector<float> region(6);
  Call("_tofu_publish", "", {tile}, {&numbers[0]});
  Call("_tofu_multifetch", kSpec, {&numbers[0], local}, {region.data(), &numbers[1]});
  Call("_tofu_retire", "", {tile, &numbers[0], &numbers[1]}, {&numbers[2]});
  RetireUnseen();
  TofuObserveFetches(nullptr);
  RetireUnseen();
  EXPECT_EQ(g_steps, (std::vector<int>{0, 1, 2, 2}));
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
  return "dtype=0 shape=" + size + " remote=0 sources=" + std::to_string(rows) +
         ",32; pieces=0@0," + std::to_string(begin) + ">0,0:" + size;
}

TEST(MultiFetchOpsThreads, ReadSpecificationsWhileOthersAddNewOnes) {
  const auto wrong = OnAllThreads([](int thread) {
    std::string problems;
    for (int round = 0; round < 200; ++round) {
      // Half of the rounds are new to all threads; some threads know the others.
      const int rows = 1 + (round % 2 == 0 ? round / 2 : 100 + 100 * thread + round);
      Attribute spec("spec", SliceSpec(rows, 0));
      OpShapes shapes = {{{}}, {{}, {}}};
      Op("_tofu_multifetch").infer_shapes(spec.attrs(), &shapes);
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
