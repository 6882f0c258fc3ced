#include "kernels/cuda_compile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/cuda_driver.h"
#include "kernels/cuda_generic.h"
#include "kernels/gpu_fetch.h"

namespace tofu {
namespace {

const char kSpec[] = "dtype=0 shape=8 remote=1 sources=8; pieces=0@0>0:8";

void ExpectText(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// An empty folder that is gone after the test.
class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/tofu-test-XXXXXX";
    path_ = mkdtemp(pattern);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(KernelCache, FindsWhatItKeeps) {
  const Folder folder;
  const KernelCache cache(folder.path() + "/new/folder");
  EXPECT_FALSE(cache.Find("sm_80").has_value());
  const std::string image("an\0image\n", 9);
  cache.Keep("sm_80\nsource", image);
  EXPECT_EQ(cache.Find("sm_80\nsource"), image);
  EXPECT_FALSE(cache.Find("sm_70\nsource").has_value());
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(folder.path() + "/new/folder")) {
    EXPECT_EQ(file.path().string(), cache.PathOf("sm_80\nsource"));
    ++files;
  }
  EXPECT_EQ(files, 1) << "an unfinished file is left";
}

TEST(KernelCache, DoesNotTrustDamagedFiles) {
  const Folder folder;
  const KernelCache cache(folder.path());
  cache.Keep("key", "a compiled kernel");
  const std::string path = cache.PathOf("key");
  std::string whole;
  {
    std::ifstream file(path, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(file), {});
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] + 1);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(cache.Find("key").has_value()) << "byte " << at;
    std::ofstream(path, std::ios::binary) << whole.substr(0, at);
    EXPECT_FALSE(cache.Find("key").has_value()) << at << " bytes";
  }
  cache.Keep("key", "another");
  EXPECT_EQ(cache.Find("key"), "another");
}

TEST(KernelCache, WorksWithoutAFolder) {
  for (const char* place : {"", "/proc/no/such/folder"}) {
    const KernelCache cache{place};
    cache.Keep("key", "image");
    EXPECT_FALSE(cache.Find("key").has_value());
  }
}

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
  // Nothing of a failure is left behind: every call says the same.
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
