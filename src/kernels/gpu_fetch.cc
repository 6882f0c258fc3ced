#include "kernels/gpu_fetch.h"

#include <cstdio>
#include <exception>
#include <vector>

namespace tofu {

GpuFetch::GpuFetch(const CompiledFetch& compiled, const CudaDriver& driver,
                   CudaContext context)
    : driver_(driver),
      context_(context),
      blocks_(compiled.kernel.blocks),
      threads_(compiled.kernel.threads),
      num_sources_(compiled.kernel.num_sources) {
  const CudaDriver::Current current(driver_, context_);
  function_ = driver_.LoadFunction(compiled.image, compiled.kernel.name);
  const std::vector<int64_t>& boxes = compiled.kernel.boxes;
  if (boxes.empty()) return;
  boxes_.emplace(driver_, context_, boxes.data(), boxes.size() * sizeof(boxes[0]));
}

void GpuFetch::Launch(std::vector<const void*> sources, void* region,
                      void* stream) const {
  // TofuSources: the driver copies it, as all arguments, before it returns.
  sources.resize(static_cast<size_t>(num_sources_));
  CudaAddress boxes = boxes_ ? boxes_->address() : 0;
  void* arguments[] = {static_cast<void*>(&region), static_cast<void*>(sources.data()),
                       &boxes};
  const CudaDriver::Current current(driver_, context_);
  driver_.Launch(function_, blocks_, threads_, stream, arguments);
}

Gpus& Gpus::Default() {
  static auto* const gpus = new Gpus;
  return *gpus;
}

void Gpus::KeepKernels(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(mutex_);
  cache_ = KernelCache(folder);
}

const GpuFetch& Gpus::Prepare(const std::string& text, int device) {
  std::unique_lock<std::mutex> lock(mutex_);
  Device& known = Open(device);
  std::unique_ptr<GpuFetch>& kept = known.fetches[text];
  if (kept != nullptr) return *kept;
  // Other devices continue meanwhile.
  lock.unlock();
  const CompiledFetch compiled =
      CompileFetch(ReadSpec(text),
                   [&](const CudaKernel& kernel) { return Image(kernel, known.arch); });
  TellOfFallback(compiled);
  auto fetch = std::make_unique<GpuFetch>(compiled, CudaDriver::Default(), known.context);
  lock.lock();
  if (kept == nullptr) kept = std::move(fetch);
  return *kept;
}

std::vector<std::pair<int, int>> Gpus::Connect(const std::vector<int>& devices) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const CudaDriver& driver = CudaDriver::Default();
  std::vector<std::pair<int, int>> apart;
  for (const int reader : devices) {
    const CudaDriver::Current current(driver, Open(reader).context);
    for (const int owner : devices) {
      if (owner == reader) continue;
      if (!driver.CanReach(reader, owner)) {
        apart.emplace_back(reader, owner);
        continue;
      }
      driver.EnablePeer(Open(owner).context);
    }
  }
  return apart;
}

std::string Gpus::Image(const CudaKernel& kernel, int arch) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::shared_future<std::string>& image = images_[{arch, kernel.source}];
  if (image.valid()) {
    const std::shared_future<std::string> there = image;
    lock.unlock();
    return there.get();
  }
  std::promise<std::string> promise;
  image = promise.get_future().share();
  const KernelCache cache = cache_;
  lock.unlock();
  try {
    std::string made = CompileKernel(kernel, arch, Nvrtc::Default(), cache);
    promise.set_value(made);
    return made;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

void Gpus::TellOfFallback(const CompiledFetch& compiled) {
  if (compiled.kernel.boxes.empty() || compiled.problem.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(has_told_, true)) return;
  std::fprintf(stderr,
               "tofu: a MultiFetch uses the generic kernel, which is slower: %s\n",
               compiled.problem.c_str());
}

CudaContext Gpus::Context(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Open(device).context;
}

Gpus::Device& Gpus::Open(int device) {
  Device& known = devices_[device];
  if (known.context == nullptr) {
    const CudaDriver& driver = CudaDriver::Default();
    known.arch = driver.Arch(device);
    known.context = driver.PrimaryContext(device);
  }
  return known;
}

}  // namespace tofu
