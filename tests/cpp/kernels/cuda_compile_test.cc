#include "kernels/cuda_compile.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda_driver.h"
#include "kernels/cuda_generic.h"
#include "kernels/gpu_fetch.h"
#include "support/expect_text.h"

namespace tofu {
namespace {

const char kSpec[] = "dtype=0 shape=8 sources=8; pieces=0@0>0:8";

TEST(CompileFetch, TakesTheKernelOfTheSpecification) {
  const CompiledFetch compiled =
      CompileFetch(ReadSpec(kSpec), [](const CudaKernel& kernel) { return kernel.name; });
  EXPECT_TRUE(compiled.kernel.boxes.empty());
  EXPECT_EQ(compiled.image, "tofu_fetch");
  EXPECT_EQ(compiled.problem, "");
}

TEST(CompileFetch, FallsBackToTheGenericKernel) {
  const CompiledFetch compiled =
      CompileFetch(ReadSpec(kSpec), [](const CudaKernel& kernel) -> std::string {
        if (kernel.boxes.empty()) throw CudaError("too long");
        return "generic";
      });
  EXPECT_EQ(compiled.image, "generic");
  EXPECT_EQ(compiled.kernel.source, EmitGenericCuda(ReadSpec(kSpec)).source);
  EXPECT_EQ(compiled.problem, "too long");
}

TEST(CompileFetch, SaysWhyNothingCompiles) {
  try {
    CompileFetch(ReadSpec(kSpec), [](const CudaKernel&) -> std::string {
      throw CudaError("no compiler");
    });
    FAIL() << "no error";
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(), "no compiler");
  }
}

TEST(Nvrtc, SaysThatItIsMissing) {
  try {
    const Nvrtc nvrtc("/no/such/libnvrtc.so");
    FAIL() << "no error";
  } catch (const CudaError& error) {
    ExpectText(error.what(),
               "found no /no/such/libnvrtc.so; MultiFetch on GPUs compiles");
    ExpectText(error.what(), "or use TOFU_FETCH=plain");
  }
}

TEST(Nvrtc, SaysThatALibraryIsNoNvrtc) {
  try {
    const Nvrtc nvrtc("libm.so.6");
    FAIL() << "no error";
  } catch (const CudaError& error) {
    ExpectText(error.what(),
               "found no nvrtcVersion in libm.so.6, expected CUDA 11.2 or later");
  }
}

TEST(CudaDriver, SaysThatItIsMissing) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) {
    GTEST_SKIP() << "this machine has NVIDIA's driver";
  }
  // A failure leaves no state behind, so every call reports the same error.
  for (int call = 0; call < 2; ++call) {
    try {
      Gpus::Default().Prepare(kSpec, 0);
      FAIL() << "no error";
    } catch (const CudaError& error) {
      ExpectText(error.what(), "found no libcuda.so.1; GPUs need NVIDIA's driver");
    }
  }
}

}  // namespace
}  // namespace tofu
