// Tests teaching inference functions to a library that stands in for MXNet.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "mxnet/fake/fake_mxnet.h"

extern "C" {
const char* TofuTeachOpen(const char* path);
const char* TofuTeachStatefulOp(int i);
void TofuTeachNode(const char* name, int num_outputs, const int* num_dims,
                   const int64_t* dims, const int* dtypes);
int TofuTeachBegin();
void TofuTeachEnd();
}

namespace tofu {
namespace {

constexpr char kTaught[] = "_backward_FullyConnected";

// mxnet::TShape
struct Tuple {
  int32_t num_dims = -1;
  int32_t num_heap_dims = 0;
  int64_t stack_dims[4] = {};
  int64_t* heap_dims = nullptr;

  std::vector<int64_t> Dims() const {
    const int64_t* dims = num_dims > 4 ? heap_dims : stack_dims;
    return {dims, dims + num_dims};
  }
};

// Calls the function in a slot for a node of this name, as MXNet would.
template <typename T>
bool Infer(const FakeSlot& slot, const char* node, std::vector<T>* outputs) {
  using Function = bool (*)(const void*, const void*, void*, void*);
  const char* attrs[] = {nullptr, node};  // the operator, and the node's name
  T* ends[] = {outputs->data(), outputs->data() + outputs->size(),
               outputs->data() + outputs->size()};
  return reinterpret_cast<Function>(slot.invoker)(nullptr, attrs, nullptr, ends);
}

// Runs before the library is opened, which happens once in a process.
TEST(TeachShapes1Refusal, SaysWhyALibraryCannotBeTaught) {
  if (TofuTeachBegin() > 0) {
    TofuTeachEnd();
    GTEST_SKIP() << "another test of this process has opened it";
  }
  EXPECT_NE(std::string(TofuTeachOpen("libnone.so")).find("no library is loaded"),
            std::string::npos);
  FakeSetVersion(10801);
  EXPECT_NE(std::string(TofuTeachOpen(FakeMxnetPath())).find("version 10801"),
            std::string::npos);
  FakeSetVersion(10901);
  FakeShareIndex(true);
  EXPECT_NE(std::string(TofuTeachOpen(FakeMxnetPath())).find("memory layout"),
            std::string::npos);
  FakeShareIndex(false);
  FakeSlot* const forward = FakeSlotOf("FInferShape", "FullyConnected");
  const FakeSlot before = *forward;
  forward->level = 0;
  EXPECT_NE(std::string(TofuTeachOpen(FakeMxnetPath())).find("memory layout"),
            std::string::npos)
      << "a forward operator without a shape function";
  *forward = before;
  EXPECT_EQ(TofuTeachBegin(), 0) << "nothing is open";
}

class TeachShapes2 : public testing::Test {
 protected:
  TeachShapes2() {
    const char* const problem = TofuTeachOpen(FakeMxnetPath());
    EXPECT_EQ(problem, nullptr) << problem;
  }
  ~TeachShapes2() override { TofuTeachEnd(); }

  static FakeSlot& Slot(const char* map, const char* op) { return *FakeSlotOf(map, op); }
  static bool IsEmpty(const FakeSlot& slot) {
    const FakeSlot empty = {};
    return std::memcmp(&slot, &empty, sizeof(slot)) == 0;
  }
};

TEST_F(TeachShapes2, EmptySlotsOfBackwardOperatorsAreFilledAndEmptiedAgain) {
  ASSERT_TRUE(IsEmpty(Slot("FInferShape", kTaught)));
  // Two maps; two operators, and a third that only one of them reaches.
  EXPECT_EQ(TofuTeachBegin(), 2 + 3);
  for (const char* map : {"FInferShape", "FInferType"}) {
    EXPECT_NE(Slot(map, kTaught).invoker, nullptr) << map;
    EXPECT_NE(Slot(map, kTaught).manager, nullptr) << map;
    EXPECT_GT(Slot(map, kTaught).level, 0) << map;
  }
  EXPECT_EQ(TofuTeachBegin(), 0) << "they are filled already";
  TofuTeachEnd();
  for (const char* map : {"FInferShape", "FInferType"}) {
    EXPECT_TRUE(IsEmpty(Slot(map, kTaught))) << map;
  }
  EXPECT_EQ(TofuTeachBegin(), 5) << "and can be filled again";
}

TEST_F(TeachShapes2, FunctionsOfOperatorsThemselvesAreNeverTouched) {
  for (const char* map : {"FInferShape", "FInferType"}) {
    for (const char* op : {"FullyConnected", "_backward_Own", "_backward_Odd"}) {
      const FakeSlot before = Slot(map, op);
      TofuTeachBegin();
      EXPECT_EQ(std::memcmp(&before, &Slot(map, op), sizeof(before)), 0) << map << op;
      TofuTeachEnd();
      EXPECT_EQ(std::memcmp(&before, &Slot(map, op), sizeof(before)), 0) << map << op;
    }
  }
}

TEST_F(TeachShapes2, ATaughtNodeHasItsShapesAndDtypes) {
  const int num_dims[] = {2, 5, 0};
  const int64_t dims[] = {3, 4, 1, 2, 3, 4, 5};
  const int dtypes[] = {0, 2, 6};
  TofuTeachNode("fc_backward", 3, num_dims, dims, dtypes);
  TofuTeachBegin();
  std::vector<Tuple> shapes(3);
  EXPECT_TRUE(Infer(Slot("FInferShape", kTaught), "fc_backward", &shapes));
  EXPECT_EQ(shapes[0].Dims(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(shapes[1].Dims(), (std::vector<int64_t>{1, 2, 3, 4, 5})) << "on the heap";
  EXPECT_EQ(shapes[2].num_dims, 0);
  std::vector<int32_t> found(3, -1);
  EXPECT_TRUE(Infer(Slot("FInferType", kTaught), "fc_backward", &found));
  EXPECT_EQ(found, (std::vector<int32_t>{0, 2, 6}));
  delete[] shapes[1].heap_dims;
}

TEST_F(TeachShapes2, AnUnknownNodeIsNotInferredNorOneOfAnEarlierGraph) {
  const int num_dims[] = {1};
  const int64_t dims[] = {3};
  const int dtypes[] = {0};
  TofuTeachNode("known", 1, num_dims, dims, dtypes);
  TofuTeachBegin();
  std::vector<Tuple> shapes(1);
  EXPECT_FALSE(Infer(Slot("FInferShape", kTaught), "unknown", &shapes));
  EXPECT_EQ(shapes[0].num_dims, -1);
  TofuTeachEnd();
  TofuTeachBegin();
  EXPECT_FALSE(Infer(Slot("FInferShape", kTaught), "known", &shapes));
}

TEST_F(TeachShapes2, FewerOutputsThanAreTaughtAreFilled) {
  const int num_dims[] = {1, 1};
  const int64_t dims[] = {3, 4};
  const int dtypes[] = {0, 1};
  TofuTeachNode("two", 2, num_dims, dims, dtypes);
  TofuTeachBegin();
  std::vector<Tuple> shapes(1);
  EXPECT_TRUE(Infer(Slot("FInferShape", kTaught), "two", &shapes));
  EXPECT_EQ(shapes[0].Dims(), std::vector<int64_t>{3});
  std::vector<Tuple> more(3);
  EXPECT_TRUE(Infer(Slot("FInferShape", kTaught), "two", &more));
  EXPECT_EQ(more[2].num_dims, -1);
}

TEST_F(TeachShapes2, StatefulOperatorsAreListed) {
  ASSERT_NE(TofuTeachStatefulOp(0), nullptr);
  EXPECT_STREQ(TofuTeachStatefulOp(0), "_backward_State");
  EXPECT_EQ(TofuTeachStatefulOp(1), nullptr);
}

}  // namespace
}  // namespace tofu
