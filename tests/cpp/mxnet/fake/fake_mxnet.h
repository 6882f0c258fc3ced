// A library that stands in for libmxnet.so: a few operators with their attribute maps,
// in memory laid out as MXNet 1.9.1's is, and the functions that tofu looks up in it.
#ifndef TOFU_TESTS_CPP_MXNET_FAKE_FAKE_MXNET_H_
#define TOFU_TESTS_CPP_MXNET_FAKE_FAKE_MXNET_H_

#include <cstdint>

// One function of an operator's attribute: an std::function of GCC 4.8 and its level.
struct FakeSlot {
  void* functor[2];
  void* manager;
  void* invoker;
  int64_t level;
};

extern "C" {

// The name under which the library is loaded.
const char* FakeMxnetPath();

// The slot of an operator in a map, or null where the map does not reach that far.
FakeSlot* FakeSlotOf(const char* map, const char* op);

// What MXGetVersion says from now on.
void FakeSetVersion(int version);

// The flag of an operator in TIsMKLDNN.
bool FakeFlagOf(const char* op);

// What the dispatcher of all operators has been called with: types of the resources,
// one digit each, a call a line.
const char* FakeCalls();
void FakeForgetCalls();

// Gives two operators one index, or each its own again.
void FakeShareIndex(bool is_shared);
}

#endif  // TOFU_TESTS_CPP_MXNET_FAKE_FAKE_MXNET_H_
