// Tests freeing tofu's operators of resources, in a library that stands in for MXNet.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "mxnet/fake/fake_mxnet.h"

extern "C" {
const char* TofuFreeOpen(const char* path);
int TofuFreeBegin();
int TofuFreeViews();
void TofuFreeEnd();
}

namespace tofu {
namespace {

constexpr const char* kOurs = "_tofu_multifetch";
constexpr const char* kComputes[] = {"FComputeEx<cpu>", "FComputeEx<gpu>"};

// mxnet::Resource
struct Resource {
  int32_t type;
  char others[28];
};

// mxnet::NDArray::Chunk and mxnet::NDArray
struct Chunk {
  int64_t data;
  int64_t size;
  int32_t device[2];
  char others[32];
  int64_t layout;
  char more[160];
};
struct Array {
  Chunk* chunk;
  char others[216];
};

// mxnet::OpContext
struct Context {
  char before[8] = {};
  int32_t device[2] = {1, 3};
  char between[48] = {};
  Resource* begin = nullptr;
  Resource* end = nullptr;
  Resource* end_of_storage = nullptr;
};

void* InvokerOf(const char* map, const char* op) { return FakeSlotOf(map, op)->invoker; }

// Calls an operator on device 3 with resources of these types and an array on each of
// `devices`, whose data is at its number; returns the dispatcher's record.
std::string Compute(const char* map, const char* op, const std::vector<int>& types,
                    const std::vector<int>& devices = {3}) {
  using Function =
      void (*)(const void*, const void*, Context*, const void*, const void*, const void*);
  std::vector<Resource> resources;
  for (int type : types) resources.push_back({type, {}});
  Context context;
  context.begin = resources.data();
  context.end = context.end_of_storage = resources.data() + resources.size();
  std::vector<Chunk> chunks;
  for (int device : devices) {
    chunks.push_back({static_cast<int64_t>(chunks.size()), 8, {1, device}, {}, 99, {}});
  }
  std::vector<Array> arrays;
  for (Chunk& chunk : chunks) arrays.push_back({&chunk, {}});
  const Array* inputs[] = {arrays.data(), arrays.data() + arrays.size(),
                           arrays.data() + arrays.size()};
  FakeForgetCalls();
  reinterpret_cast<Function>(InvokerOf(map, op))(nullptr, nullptr, &context, inputs,
                                                 nullptr, nullptr);
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(arrays[i].chunk, &chunks[i]) << "the arrays are as they were";
    EXPECT_EQ(chunks[i].layout, 99);
  }
  EXPECT_EQ(context.begin, resources.data()) << "the context is as it was";
  EXPECT_EQ(context.end, resources.data() + resources.size());
  return FakeCalls();
}

// The number of resources that an operator requests.
size_t CountRequests(const char* op) {
  struct Types {
    int32_t* begin;
    int32_t* end;
    int32_t* end_of_storage;
  };
  using Function = Types* (*)(Types*, const void*, const void*);
  Types types = {};
  reinterpret_cast<Function>(InvokerOf("FResourceRequest", op))(&types, nullptr, nullptr);
  const auto count = static_cast<size_t>(types.end - types.begin);
  ::operator delete(types.begin);
  return count;
}

TEST(FreeOperators1Refusal, NothingIsFreedBeforeItHasBeenSeenToRun) {
  ASSERT_EQ(TofuFreeOpen(FakeMxnetPath()), nullptr);
  if (TofuFreeBegin() > 0) {
    TofuFreeEnd();
    GTEST_SKIP() << "another test of this process has run some";
  }
  EXPECT_EQ(CountRequests(kOurs), 2u);
  TofuFreeEnd();
}

class FreeOperators2 : public testing::Test {
 protected:
  FreeOperators2() {
    for (const char* map : kComputes) {
      TofuSlot(map, kOurs);
    }
    const char* const problem = TofuFreeOpen(FakeMxnetPath());
    EXPECT_EQ(problem, nullptr) << problem;
    EXPECT_EQ(Compute("FComputeEx<cpu>", kOurs, {1, 2}), "12 0!\n");
  }
  ~FreeOperators2() override { TofuFreeEnd(); }

  void TofuSlot(const char* map, const char* op) {
    EXPECT_EQ(InvokerOf(map, op), InvokerOf(map, "Convolution")) << "MXNet's, before";
  }
};

TEST_F(FreeOperators2, OnlyTheDispatchersOfTofusOperatorsAreReplaced) {
  for (const char* map : kComputes) {
    EXPECT_NE(InvokerOf(map, kOurs), InvokerOf(map, "Convolution")) << map;
  }
  EXPECT_EQ(CountRequests(kOurs), 2u) << "not yet";
  EXPECT_EQ(CountRequests("Convolution"), 2u);
}

TEST_F(FreeOperators2, TheyRequestNothingUntilTheEnd) {
  EXPECT_EQ(TofuFreeBegin(), 1);
  EXPECT_EQ(CountRequests(kOurs), 0u);
  EXPECT_EQ(CountRequests("Convolution"), 2u);
  TofuFreeEnd();
  EXPECT_EQ(CountRequests(kOurs), 2u);
  for (const char* map : kComputes) TofuSlot(map, kOurs);
}

TEST_F(FreeOperators2, TheDispatcherIsLentWhatWasNotRequested) {
  TofuFreeBegin();
  for (const char* map : kComputes) {
    EXPECT_EQ(Compute(map, kOurs, {}), "12 0!\n") << map;
    EXPECT_EQ(Compute(map, kOurs, {1, 2}), "12 0!\n") << "of a graph bound before";
  }
}

TEST_F(FreeOperators2, FetchesSeeOtherWorkersArraysWithoutTheirLayouts) {
  EXPECT_EQ(Compute("FComputeEx<cpu>", kOurs, {1, 2}, {3, 3}), "12 0! 1!\n");
  EXPECT_FALSE(TofuFreeViews()) << "not yet";
  TofuFreeBegin();
  EXPECT_TRUE(TofuFreeViews());
  EXPECT_EQ(Compute("FComputeEx<cpu>", kOurs, {}, {3, 4, 3, 0}), "12 0! 1 2! 3\n");
  EXPECT_EQ(Compute("FComputeEx<gpu>", kOurs, {}, {4}), "12 0!\n");
  TofuFreeEnd();
  EXPECT_FALSE(TofuFreeViews());
}

TEST_F(FreeOperators2, FetchesTakeLayoutsOfOneDnn) {
  EXPECT_FALSE(FakeFlagOf(kOurs));
  TofuFreeBegin();
  EXPECT_TRUE(FakeFlagOf(kOurs));
  EXPECT_TRUE(FakeFlagOf("Convolution")) << "as before";
  EXPECT_FALSE(FakeFlagOf("FullyConnected"));
  TofuFreeEnd();
  EXPECT_FALSE(FakeFlagOf(kOurs));
  EXPECT_TRUE(FakeFlagOf("Convolution"));
}

// In a separate process, because a process remembers the arrays that it has seen.
TEST_F(FreeOperators2, ArraysInOtherPlacesThanExpectedAreNeverViewed) {
  EXPECT_EXIT(
      {
        Compute("FComputeEx<cpu>", kOurs, {1, 2}, {5});
        TofuFreeBegin();
        std::_Exit(TofuFreeViews() == 0 && !FakeFlagOf(kOurs) ? 7 : 0);
      },
      testing::ExitedWithCode(7), "");
}

// In separate processes, because a process remembers the resources that it has seen.
TEST_F(FreeOperators2, OtherResourcesThanExpectedFreeNothing) {
  for (const std::vector<int>& types : {std::vector<int>{2, 1}, {1}, {1, 2, 2}}) {
    EXPECT_EXIT(
        {
          Compute("FComputeEx<cpu>", kOurs, types);
          std::_Exit(TofuFreeBegin());
        },
        testing::ExitedWithCode(0), "");
  }
}

TEST_F(FreeOperators2, AnOperatorWithAnotherDispatcherFreesNothing) {
  TofuFreeEnd();
  EXPECT_EXIT(
      {
        FakeSlotOf("FComputeEx<gpu>", kOurs)->invoker = nullptr;
        const char* const problem = TofuFreeOpen(FakeMxnetPath());
        std::_Exit(problem != nullptr && std::strstr(problem, kOurs) != nullptr ? 7 : 0);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace tofu
