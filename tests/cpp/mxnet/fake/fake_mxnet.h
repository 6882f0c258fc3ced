// A library that stands in for libmxnet.so: a few operators with their attribute maps,
// with the memory layout of MXNet 1.9.1, and the functions that tofu looks up in it.
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

// The slot of an operator in a map, or null if the map ends before it.
FakeSlot* FakeSlotOf(const char* map, const char* op);

// Sets the version that MXGetVersion returns.
void FakeSetVersion(int version);

// The flag of an operator in TIsMKLDNN.
bool FakeFlagOf(const char* op);

// The calls of the operators' dispatcher, one per line: the types of the resources, one
// digit each.
const char* FakeCalls();
void FakeForgetCalls();

// Gives two operators the same index, or each its own again.
void FakeShareIndex(bool is_shared);
}

#endif  // TOFU_TESTS_CPP_MXNET_FAKE_FAKE_MXNET_H_
