// Compiles any kernel for the CPU when it is loaded, with the compiler $FAKE_CXX, and
// keeps it in the folder $FAKE_KERNELS. $FAKE_INCLUDE is the folder of cuda_on_cpu.h's
// path.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "kernels/gpu/fake/fake_kernels.h"

namespace {

// A kernel has one more argument if it is the generic one.
constexpr char kRun[] = R"(
namespace {
typedef void Own(char*, const TofuSources);
typedef void Generic(char*, const TofuSources, const long long*);
void Call(Own* kernel, char* region, const TofuSources& sources, const long long*) {
  kernel(region, sources);
}
void Call(Generic* kernel, char* region, const TofuSources& sources,
          const long long* boxes) {
  kernel(region, sources, boxes);
}
}
extern "C" void Run(int blocks, char* region, const char* const* given,
                    const long long* boxes) {
  TofuSources sources;
  __builtin_memcpy(&sources, given, sizeof(sources));
  tofu_cuda::Launch(blocks, 256, [&] { Call(tofu_fetch, region, sources, boxes); });
}
)";

std::string Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The library of a text; processes may make the same one at once.
std::string Compiled(const std::string& text) {
  const std::string base =
      Setting("FAKE_KERNELS") + "/" + std::to_string(std::hash<std::string>()(text));
  const std::string library = base + ".so";
  if (access(library.c_str(), R_OK) == 0) return library;
  const std::string own = base + "." + std::to_string(getpid());
  std::ofstream(own + ".cc") << text;
  const std::string command = Setting("FAKE_CXX") + " -w -O1 -fno-strict-aliasing -fPIC" +
                              " -shared -std=c++17 -I'" + Setting("FAKE_INCLUDE") +
                              "' '" + own + ".cc' -o '" + own + ".so'";
  if (std::system(command.c_str()) != 0) return "";
  std::rename((own + ".so").c_str(), library.c_str());
  std::remove((own + ".cc").c_str());
  return library;
}

}  // namespace

tofu::RunEmitted tofu::FindKernel(const char* image) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, RunEmitted>;  // never freed
  const std::string text =
      std::string("#include \"kernels/emitted/cuda_on_cpu.h\"\n") + image + kRun;
  const std::lock_guard<std::mutex> lock(mutex);
  RunEmitted& run = known[text];
  if (run != nullptr) return run;
  void* const library = dlopen(Compiled(text).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "stand-in for CUDA's driver: %s\n", dlerror());
    return nullptr;
  }
  run = reinterpret_cast<RunEmitted>(dlsym(library, "Run"));
  return run;
}
