// libtofu_profiler.so: what tofu trace adds to MXNet's profiler.
//
// The profiler calls an operator by its kind ("FullyConnected"). For operators that a
// Custom operator pushes, it puts that one's name in front ("swish::FullyConnected"),
// kept by thread. Naming the nodes of an executor as if each were pushed by a Custom
// operator of its own makes the profiler tell them apart.
//
// The profiler has statistics for as many CPU contexts as the machine has cores, and ends
// the process at a larger one. If this library is loaded with RTLD_GLOBAL before MXNet,
// the omp_get_num_procs below precedes OpenMP's and tells the profiler, and only it, of
// more.
//
// All symbols are those of MXNet 1.9.1; functions take plain words and strings of GCC 4's
// ABI.

#include <dlfcn.h>
#include <sched.h>

#include <cstring>
#include <string>

#define TOFU_EXPORT __attribute__((visibility("default")))

namespace {

constexpr int kContexts = 1024;  // more than a process has workers

// The profiler's constructor, or the function that it is inlined into.
constexpr const char* kProfiler = "_ZN5mxnet8profiler8Profiler";

// Members of mxnet::profiler::CustomOpProfiler.
using Get = void* (*)();
using Begin = void (*)(void* profiler, const std::string& name);
using End = void (*)(void* profiler);
using DisplayName = const char* (*)(void* profiler, const char* kind);

Get get = nullptr;
Begin begin = nullptr;
End end = nullptr;
DisplayName display_name = nullptr;

thread_local bool is_labelled = false;
thread_local bool is_in_custom = false;  // a Custom operator runs on this thread

template <typename Function>
bool Find(void* library, const char* name, Function* found) {
  *found = reinterpret_cast<Function>(dlsym(library, name));
  return *found != nullptr;
}

int Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return CPU_COUNT(&cores);
}

}  // namespace

extern "C" {

// Returns whether the functions are in the library at `path`.
TOFU_EXPORT int TofuProfilerOpen(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const bool found =
      Find(library, "_ZN5mxnet8profiler16CustomOpProfiler3GetEv", &get) &&
      Find(library, "_ZN5mxnet8profiler16CustomOpProfiler13OnCustomBeginERKSs", &begin) &&
      Find(library, "_ZN5mxnet8profiler16CustomOpProfiler11OnCustomEndEv", &end) &&
      Find(library, "_ZN5mxnet8profiler16CustomOpProfiler19GenerateDisplayNameEPKc",
           &display_name);
  return found ? 1 : 0;
}

// Puts `label` and "::" in front of the names of what this thread pushes from now on,
// while the profiler runs; null ends that. Call TofuProfilerOpen first.
TOFU_EXPORT void TofuProfilerLabel(const char* label) {
  static const char kind[] = "x";
  void* profiler = get();
  if (label != nullptr) {
    if (!is_labelled) is_in_custom = display_name(profiler, kind) != kind;
    begin(profiler, label);
  } else if (is_labelled && is_in_custom) {
    begin(profiler, "");  // MXNet ends it itself
  } else if (is_labelled) {
    end(profiler);
  }
  is_labelled = label != nullptr;
}

// OpenMP's function.
TOFU_EXPORT int omp_get_num_procs() {  // NOLINT(readability-identifier-naming)
  Dl_info caller;
  const int cores = Cores();
  const bool is_profiler =
      dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_sname != nullptr &&
      std::strncmp(caller.dli_sname, kProfiler, std::strlen(kProfiler)) == 0;
  return is_profiler && cores < kContexts ? kContexts : cores;
}

}  // extern "C"
