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
#include "kernels/handle.h"
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

  // The region that `compiled` makes on GPU `reader` of tiles on GPU `owner`.
  static std::vector<char> Run(const MultiFetchSpec& spec, const CompiledFetch& compiled,
                               const std::vector<std::vector<char>>& data, int reader,
                               int owner, size_t shift) {
    const CudaDriver& driver = CudaDriver::Default();
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    FetchCall call;
    for (size_t i = 0; i < data.size(); ++i) {
      const bool is_remote = static_cast<int>(i) < spec.num_remote;
      arrays.push_back(std::make_unique<DeviceArray>(
          is_remote ? owner : reader, data[i].data(), data[i].size(), shift));
      CudaAddress address = arrays.back()->address();
      if (is_remote) {
        call.owners.push_back(static_cast<int>(i));
        address = SealHandle(reinterpret_cast<const void*>(address), call.owners.back());
        arrays.push_back(
            std::make_unique<DeviceArray>(reader, &address, sizeof(address), 0));
        address = arrays.back()->address();
      }
      call.sources.push_back(reinterpret_cast<const void*>(address));
    }
    const size_t bytes = Elements(spec.shape) * ElementBytes(spec.dtype);
    std::vector<char> region(bytes, 'x');
    const DeviceArray target(reader, region.data(), bytes, shift);
    const uint64_t seven = 7;
    const DeviceArray done(reader, &seven, sizeof(seven), 0);
    const CudaContext context = Gpus::Default().Context(reader);
    FaultRecord faults(driver, context);
    const GpuFetch fetch(compiled, driver, context, faults);
    fetch.Launch(call, reinterpret_cast<void*>(target.address()),
                 reinterpret_cast<void*>(done.address()), nullptr);
    const CudaDriver::Current current(driver, context);
    driver.Wait(nullptr);
    uint64_t written = 1;
    driver.CopyToHost(&written, done.address(), sizeof(written));
    EXPECT_EQ(written, 0u);
    EXPECT_FALSE(faults.Take().has_value());
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

// Calls an operator on the arrays of one device, as MXNet would.
void Call(const std::string& name, const std::string& spec, int device,
          const std::vector<const DeviceArray*>& inputs,
          const std::vector<const DeviceArray*>& outputs) {
  const auto addresses = [](const std::vector<const DeviceArray*>& arrays) {
    std::vector<void*> pointers;
    for (const DeviceArray* array : arrays) {
      pointers.push_back(reinterpret_cast<void*>(array->address()));
    }
    return pointers;
  };
  const std::vector<void*> in = addresses(inputs);
  const std::vector<void*> out = addresses(outputs);
  const char* const keys[] = {"spec"};
  const char* const values[] = {spec.c_str()};
  int index = 0;
  while (FindOp(index) != nullptr && FindOp(index)->name != name) ++index;
  ASSERT_NE(FindOp(index), nullptr) << name;
  FindOp(index)->compute({keys, values, 1},
                         {in.data(), static_cast<int>(in.size()), out.data(),
                          static_cast<int>(out.size()), true, device, nullptr});
}

// A number on a device, read after all work there is done.
uint64_t NumberAt(const DeviceArray& array, int device) {
  const CudaDriver& driver = CudaDriver::Default();
  const CudaDriver::Current current(driver, Gpus::Default().Context(device));
  driver.Wait(nullptr);
  uint64_t number = 0;
  driver.CopyToHost(&number, array.address(), sizeof(number));
  return number;
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
      "dtype=0 shape=64,96 remote=1 sources=64,64;64,32; "
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
  return "dtype=0 shape=325 remote=0 sources=" + std::to_string(source_extent) +
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

TEST_F(GpuFetchTest, OperatorsPublishFetchAndRetire) {
  const CudaDriver& driver = CudaDriver::Default();
  const int owner = num_gpus_ > 1 && driver.CanReach(0, 1) ? 1 : 0;
  const MultiFetchSpec spec = ReadSpec(
      "dtype=0 shape=64,96 remote=1 sources=64,64;64,32; "
      "pieces=0@0,0>0,0:64,64;1@0,0>0,64:64,32");
  const std::vector<std::vector<char>> data = RandomData(spec, 2);
  const uint64_t seven = 7;
  const DeviceArray remote(owner, data[0].data(), data[0].size(), 0);
  const DeviceArray local(0, data[1].data(), data[1].size(), 0);
  const DeviceArray published(owner, &seven, sizeof(seven), 0);
  const DeviceArray acknowledged(0, &seven, sizeof(seven), 0);
  const DeviceArray retired(owner, &seven, sizeof(seven), 0);
  std::vector<char> region(64 * 96 * 4);
  const DeviceArray target(0, region.data(), region.size(), 0);

  Call("_tofu_publish", "", owner, {&remote}, {&published});
  EXPECT_EQ(NumberAt(published, owner),
            SealHandle(reinterpret_cast<const void*>(remote.address()), 0));
  // MXNet copies the handle to the reader.
  const uint64_t address = NumberAt(published, owner);
  const DeviceArray handle(0, &address, sizeof(address), 0);
  Call("_tofu_multifetch", WriteSpec(spec), 0, {&handle, &local},
       {&target, &acknowledged});
  EXPECT_EQ(NumberAt(acknowledged, 0), 0u);
  Call("_tofu_retire", "", owner, {&remote, &published}, {&retired});
  EXPECT_EQ(NumberAt(retired, owner), seven);  // a retirement leaves its token unwritten

  const void* tiles[] = {data[0].data(), data[1].data()};
  std::vector<char> expected(region.size());
  MultiFetch(spec).Run(tiles, expected.data());
  const CudaDriver::Current current(driver, Gpus::Default().Context(0));
  driver.CopyToHost(region.data(), target.address(), region.size());
  EXPECT_EQ(region, expected);
}

// The text that an operator throws; empty if it does not.
std::string Complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_F(GpuFetchTest, ALostHandleIsReportedOnceByTheNextOperator) {
  const std::string spec = WriteSpec(RefusedSpec());
  const std::vector<char> zeros(64, 0);
  const uint64_t nothing = 0;
  const DeviceArray tile(0, zeros.data(), 32, 0);
  const DeviceArray lost(0, &nothing, sizeof(nothing), 0);
  const DeviceArray region(0, zeros.data(), 64, 0);
  const DeviceArray number(0, &nothing, sizeof(nothing), 0);
  Call("_tofu_multifetch", spec, 0, {&lost, &tile}, {&region, &number});
  NumberAt(number, 0);  // waits
  // Nothing reads a retirement's token, so it leaves the report to others.
  EXPECT_EQ(Complaint([&] { Call("_tofu_retire", "", 0, {&tile}, {&number}); }), "");
  EXPECT_EQ(Complaint([&] { Call("_tofu_publish", "", 0, {&tile}, {&number}); }),
            "MultiFetch on worker 0: found a null address, expected an address that "
            "worker 0 published; the copy of a handle between these two workers failed, "
            "use TOFU_FETCH=plain");
  EXPECT_EQ(Complaint([&] { Call("_tofu_publish", "", 0, {&tile}, {&number}); }), "");
  for (const char* const op : {"_tofu_publish", "_tofu_multifetch"}) {
    Call("_tofu_multifetch", spec, 0, {&lost, &tile}, {&region, &number});
    NumberAt(number, 0);
    const bool is_fetch = std::string(op) == "_tofu_multifetch";
    const auto call = [&] {
      if (is_fetch) {
        Call(op, spec, 0, {&lost, &tile}, {&region, &number});
      } else {
        Call(op, "", 0, {&tile}, {&number});
      }
    };
    EXPECT_NE(Complaint(call).find("found a null address"), std::string::npos) << op;
  }
}

}  // namespace
}  // namespace tofu
