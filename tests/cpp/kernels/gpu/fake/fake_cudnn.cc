// Stands in for cuDNN 8: gives the answers that MXNet reads; all other functions do
// nothing.
#include <cstddef>

#include "kernels/gpu/fake/fake_calls.h"

namespace {

// cudnnConvolutionFwdAlgoPerf_t, and those of the two gradients.
struct Performance {
  int algorithm;
  int status;
  float milliseconds;
  size_t memory;
  int determinism;
  int math;
  int reserved[3];
};

// Algorithm 1 needs no memory and is always the best.
int Choose(int* count, Performance* found) {
  *count = 1;
  *found = {};
  found->algorithm = 1;
  return 0;
}

int SetZero(size_t* bytes) {
  *bytes = 0;
  return 0;
}

}  // namespace

FAKE size_t cudnnGetVersion() { return 8101; }

#define GRADIENTS(direction)                                                          \
  FAKE int cudnnGetConvolution##direction##AlgorithmMaxCount(void*, int* count) {     \
    *count = 1;                                                                       \
    return 0;                                                                         \
  }                                                                                   \
  FAKE int cudnnGetConvolution##direction##Algorithm_v7(                              \
      void*, void*, void*, void*, void*, int, int* count, Performance* found) {       \
    return Choose(count, found);                                                      \
  }                                                                                   \
  FAKE int cudnnFindConvolution##direction##Algorithm(                                \
      void*, void*, void*, void*, void*, int, int* count, Performance* found) {       \
    return Choose(count, found);                                                      \
  }                                                                                   \
  FAKE int cudnnGetConvolution##direction##WorkspaceSize(void*, void*, void*, void*,  \
                                                         void*, int, size_t* bytes) { \
    return SetZero(bytes);                                                            \
  }

GRADIENTS(Forward)
GRADIENTS(BackwardData)
GRADIENTS(BackwardFilter)

FAKE int cudnnDropoutGetStatesSize(void*, size_t* bytes) { return SetZero(bytes); }
FAKE int cudnnDropoutGetReserveSpaceSize(void*, size_t* bytes) { return SetZero(bytes); }
