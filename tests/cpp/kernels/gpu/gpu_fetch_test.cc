// Tests kernels on GPUs, and the operators that launch them, in a separate binary,
// tofu_gpu_tests: without a driver, NVRTC or a GPU every test is skipped with the reason.
// tofu_fake_gpu_tests has the same tests on a driver that runs kernels on the CPU.
#include "kernels/gpu_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/combine.h"
#include "kernels/cuda_generic.h"
#include "kernels/emitted/emitted_specs.h"
#include "kernels/multifetch.h"
#include "mxnet/multifetch_ops.h"
#include "support/indices.h"

namespace tofu {
namespace {

constexpr int64_t kLargest = int64_t{1} << 28;  // bytes of a source

// Memory of a device, `shift` bytes after the beginning of an allocation.
class DeviceArray {
 public:
  DeviceArray(int device, const void* data, size_t bytes, size_t shift)
      : context_(Gpus::Default().Context(device)) {
    const CudaDriver::Current current(driver_, context_);
    memory_ = driver_.Allocate(bytes + shift + 1);
    address_ = memory_ + shift;
    driver_.CopyToDevice(address_, data, bytes);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    const CudaDriver::Current current(driver_, context_);
    driver_.Free(memory_);
  }

  CudaAddress address() const { return address_; }

 private:
  const CudaDriver& driver_ = CudaDriver::Default();
  const CudaContext context_;
  CudaAddress memory_;
  CudaAddress address_;
};

class GpuFetchTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      num_gpus_ = CudaDriver::Default().CountDevices();
      Nvrtc::Default();
    } catch (const CudaError& error) {
      GTEST_SKIP() << "no GPU: " << error.what();
    }
    if (num_gpus_ == 0) GTEST_SKIP() << "no GPU: the driver finds none";
  }

  // The region that `compiled` makes on GPU `reader`; the first tile is on GPU `owner`.
  static std::vector<char> Run(const MultiFetchSpec& spec, const CompiledFetch& compiled,
                               const std::vector<std::vector<char>>& data, int reader,
                               int owner, size_t shift) {
    const CudaDriver& driver = CudaDriver::Default();
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<const void*> sources;
    for (size_t i = 0; i < data.size(); ++i) {
      arrays.push_back(std::make_unique<DeviceArray>(
          i == 0 ? owner : reader, data[i].data(), data[i].size(), shift));
      sources.push_back(reinterpret_cast<const void*>(arrays.back()->address()));
    }
    const size_t bytes = Elements(spec.shape) * ElementBytes(spec.dtype);
    std::vector<char> region(bytes, 'x');
    const DeviceArray target(reader, region.data(), bytes, shift);
    const CudaContext context = Gpus::Default().Context(reader);
    const GpuFetch fetch(compiled, driver, context);
    fetch.Launch(sources, reinterpret_cast<void*>(target.address()), nullptr);
    const CudaDriver::Current current(driver, context);
    driver.Wait(nullptr);
    driver.CopyToHost(region.data(), target.address(), bytes);
    return region;
  }

  int num_gpus_ = 0;
};

std::vector<std::vector<char>> RandomData(const MultiFetchSpec& spec, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<char>> data;
  const int64_t bytes = ElementBytes(spec.dtype);
  for (const Extents& shape : spec.sources) {
    data.emplace_back(Elements(shape) * bytes);
    for (int64_t i = 0; i < Elements(shape); ++i) {
      const double value = static_cast<double>(random() % 4001) / 250 - 8;
      WriteElement(spec.dtype, value, data.back().data() + i * bytes);
    }
  }
  return data;
}

TEST_F(GpuFetchTest, ReadsWhatTheCpuReads) {
  const std::vector<MultiFetchSpec> specs = EmittedSpecs();
  const int arch = CudaDriver::Default().Arch(0);
  const auto compile = [&](const CudaKernel& kernel) {
    return CompileKernel(kernel, arch, Nvrtc::Default(), KernelCache(""));
  };
  for (size_t s = 0; s < specs.size(); ++s) {
    const MultiFetchSpec& spec = specs[s];
    bool is_small = true;
    for (const Extents& shape : spec.sources) {
      is_small = is_small && Elements(shape) * ElementBytes(spec.dtype) <= kLargest;
    }
    if (!is_small) continue;
    SCOPED_TRACE("number " + std::to_string(s) + ": " + WriteSpec(spec));
    const std::vector<std::vector<char>> data =
        RandomData(spec, static_cast<unsigned>(s));
    std::vector<const void*> tiles;
    for (const std::vector<char>& tile : data) tiles.push_back(tile.data());
    std::vector<char> expected(Elements(spec.shape) * ElementBytes(spec.dtype));
    MultiFetch(spec).Run(tiles.data(), expected.data());
    CompiledFetch generic{EmitGenericCuda(spec), "", ""};
    generic.image = compile(generic.kernel);
    for (const CompiledFetch& compiled : {CompileFetch(spec, compile), generic}) {
      for (const int64_t shift : {int64_t{0}, ElementBytes(spec.dtype)}) {
        ASSERT_EQ(Run(spec, compiled, data, 0, 0, static_cast<size_t>(shift)), expected);
      }
    }
  }
}

// Checks access on the fake driver; with a real one, the values show it.
void ExpectPeerAccess(int reader, int owner) {
  using HasAccess = int(int reader, int owner);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const has_access =
      reinterpret_cast<HasAccess*>(dlsym(driver, "FakeHasPeerAccess"));
  if (has_access == nullptr) return;
  EXPECT_TRUE(has_access(reader, owner));
}

TEST_F(GpuFetchTest, ReadsTheMemoryOfPeers) {
  if (num_gpus_ < 2) GTEST_SKIP() << "one GPU only";
  if (!CudaDriver::Default().CanReach(0, 1)) GTEST_SKIP() << "GPU 0 cannot read GPU 1";
  Gpus& gpus = Gpus::Default();
  EXPECT_TRUE(gpus.Connect({0, 1}).empty());
  EXPECT_TRUE(gpus.Connect({1, 0}).empty());  // a second time changes nothing
  EXPECT_TRUE(gpus.Connect({1, 1}).empty());  // two workers on one GPU
  ExpectPeerAccess(0, 1);
  ExpectPeerAccess(1, 0);
  const MultiFetchSpec spec = ReadSpec(
      "dtype=0 shape=64,96 sources=64,64;64,32; "
      "pieces=0@0,0>0,0:64,64;1@0,0>0,64:64,32");
  const CompiledFetch compiled = CompileFetch(spec, [](const CudaKernel& kernel) {
    const int arch = CudaDriver::Default().Arch(0);
    return CompileKernel(kernel, arch, Nvrtc::Default(), KernelCache(""));
  });
  const std::vector<std::vector<char>> data = RandomData(spec, 1);
  const void* tiles[] = {data[0].data(), data[1].data()};
  std::vector<char> expected(64 * 96 * 4);
  MultiFetch(spec).Run(tiles, expected.data());
  EXPECT_EQ(Run(spec, compiled, data, 0, 1, 0), expected);
}

TEST_F(GpuFetchTest, CompilesASpecificationOnce) {
  const std::string spec = WriteSpec(EmittedSpecs().front());
  EXPECT_EQ(&Gpus::Default().Prepare(spec, 0), &Gpus::Default().Prepare(spec, 0));
}

TEST_F(GpuFetchTest, CompilesForSeveralThreadsAtOnce) {
  const std::vector<MultiFetchSpec> specs = EmittedSpecs();
  Gpus gpus;
  std::vector<std::vector<const GpuFetch*>> found(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < found.size(); ++t) {
    threads.emplace_back([&, t] {
      const int device = static_cast<int>(t) % std::min(2, num_gpus_);
      for (size_t s = 0; s < 8; ++s) {
        found[t].push_back(&gpus.Prepare(WriteSpec(specs[s]), device));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0], found[2]);
  EXPECT_EQ(found[1], found[3]);
  EXPECT_EQ(found[0] == found[1], num_gpus_ == 1);
}

// A specification with too many boxes for a specialized kernel.
std::string ManyBoxes(int source_extent) {
  std::string pieces;
  for (int i = 1, at = 0; i <= 25; at += i, ++i) {
    const std::string place = std::to_string(at);
    pieces += (i > 1 ? ";0@" : "0@") + place + ">" + place + ":" + std::to_string(i);
  }
  return "dtype=0 shape=325 sources=" + std::to_string(source_extent) +
         "; pieces=" + pieces;
}

// Every thread makes one kind of call, so that locks of others cannot order it by
// accident.
TEST_F(GpuFetchTest, IsUsedByThreadsAtOnce) {
  const CudaDriver& driver = CudaDriver::Default();
  const int peer = num_gpus_ > 1 && driver.CanReach(0, 1) ? 1 : 0;
  testing::internal::CaptureStderr();
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    Gpus gpus;
    const std::vector<std::function<void()>> calls = {
        [&] { EXPECT_NE(gpus.Context(0), nullptr); },
        [&] { EXPECT_NE(gpus.Context(peer), nullptr); },
        [&] { gpus.Connect({0, peer}); },
        [&] { gpus.Connect({peer, 0}); },
        [&] { gpus.KeepKernels(""); },
        [&] { gpus.Prepare(ManyBoxes(325), 0); },
        [&] { gpus.Prepare(ManyBoxes(326), peer); },
    };
    std::vector<std::thread> threads;
    for (const auto& call : calls) threads.emplace_back(call);
    for (std::thread& thread : threads) thread.join();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), kRounds) << said;
}

TEST_F(GpuFetchTest, SaysOnceThatAKernelIsTheGenericOne) {
  Gpus gpus;
  testing::internal::CaptureStderr();
  gpus.Prepare(ManyBoxes(325), 0);
  gpus.Prepare(ManyBoxes(326), 0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tofu: a MultiFetch uses the generic kernel, which is slower: too many "
            "boxes for a specialized kernel\n");
}

TEST_F(GpuFetchTest, FindsThePairsThatAreOutOfReachAndConnectsTheOthers) {
  const CudaDriver& driver = CudaDriver::Default();
  std::vector<int> all;
  for (int device = 0; device < num_gpus_; ++device) all.push_back(device);
  std::vector<std::pair<int, int>> expected;
  for (const int reader : all) {
    for (const int owner : all) {
      if (reader != owner && !driver.CanReach(reader, owner)) {
        expected.emplace_back(reader, owner);
      }
    }
  }
  Gpus gpus;
  EXPECT_EQ(gpus.Connect(all), expected);
  EXPECT_EQ(gpus.Connect(all), expected);  // GPUs apart do not count as connected
  if (num_gpus_ < 2 || !driver.CanReach(0, 1)) return;
  EXPECT_TRUE(gpus.Connect({0, 1}).empty());  // other GPUs do not matter
}

TEST_F(GpuFetchTest, TheOperatorMakesARegionForEachSpecification) {
  const CudaDriver& driver = CudaDriver::Default();
  const int owner = num_gpus_ > 1 && driver.CanReach(0, 1) ? 1 : 0;
  const std::string text =
      "dtype=0 shape=64,96 sources=64,64;64,32; pieces=0@0,0>0,0:64,64;1@0,0>0,64:64,32";
  const std::string both = text + "|dtype=0 shape=1027 sources=1027; pieces=0@0>0:1027";
  const std::vector<std::vector<char>> data = RandomData(ReadSpec(text), 2);
  const DeviceArray remote(owner, data[0].data(), data[0].size(), 0);
  const DeviceArray local(0, data[1].data(), data[1].size(), 0);
  std::vector<char> region(64 * 96 * 4);
  std::vector<char> small(1027 * 4);
  const DeviceArray target(0, region.data(), region.size(), 0);
  const DeviceArray second(0, small.data(), small.size(), 0);
  const auto pointer = [](const DeviceArray& array) {
    return reinterpret_cast<void*>(array.address());
  };
  void* const in[] = {pointer(remote), pointer(local), pointer(remote)};
  void* const out[] = {pointer(target), pointer(second)};
  const char* const keys[] = {"spec"};
  const char* const values[] = {both.c_str()};
  FindOp(0)->compute({keys, values, 1}, {in, 3, out, 2, true, 0, nullptr});

  const void* tiles[] = {data[0].data(), data[1].data()};
  std::vector<char> expected(region.size());
  MultiFetch(ReadSpec(text)).Run(tiles, expected.data());
  const CudaDriver::Current current(driver, Gpus::Default().Context(0));
  driver.Wait(nullptr);
  driver.CopyToHost(region.data(), target.address(), region.size());
  driver.CopyToHost(small.data(), second.address(), small.size());
  EXPECT_EQ(region, expected);
  EXPECT_EQ(std::memcmp(small.data(), data[0].data(), small.size()), 0);
}

}  // namespace
}  // namespace tofu
