// NVIDIA's run-time compiler for CUDA C++, a library that may be missing.
//
// Errors: CudaError if there is no NVRTC, it is older than CUDA 11.2, it supports no
//         architecture that the device runs, or it rejects the text (with its log).
#ifndef TOFU_KERNELS_NVRTC_H_
#define TOFU_KERNELS_NVRTC_H_

#include <string>
#include <vector>

#include "kernels/shared_library.h"

namespace tofu {

class Nvrtc {
 public:
  // The library at `path`; without a path the one that MXNet has loaded, else the
  // oldest that the system's loader finds.
  explicit Nvrtc(const std::string& path = "");

  // The one without a path; every call throws if there is none.
  static const Nvrtc& Default();

  // The version of NVRTC, such as "11.2".
  const std::string& version() const { return version_; }

  // The target for a device of compute capability `arch` (80 for 8.0): "sm_80" if this
  // NVRTC supports the device, else the newest older architecture that it supports, as
  // "compute_75", which the driver translates.
  std::string Target(int arch) const;

  // The module's image: machine code for "sm_...", PTX for "compute_...".
  std::string Compile(const std::string& source, const std::string& target) const;

 private:
  using Program = struct OpaqueProgram*;

  void Check(int result, const char* doing) const;

  SharedLibrary library_;
  std::string version_;
  std::vector<int> archs_;  // ascending
  int (*version_of_)(int* major, int* minor) = nullptr;
  int (*count_archs_)(int* count) = nullptr;
  int (*list_archs_)(int* archs) = nullptr;
  const char* (*error_text_)(int result) = nullptr;
  int (*create_)(Program* program, const char* source, const char* name, int num_headers,
                 const char* const* headers, const char* const* names) = nullptr;
  int (*compile_)(Program program, int num_options, const char* const* options) = nullptr;
  int (*log_size_)(Program program, size_t* size) = nullptr;
  int (*log_)(Program program, char* log) = nullptr;
  int (*ptx_size_)(Program program, size_t* size) = nullptr;
  int (*ptx_)(Program program, char* ptx) = nullptr;
  int (*cubin_size_)(Program program, size_t* size) = nullptr;
  int (*cubin_)(Program program, char* cubin) = nullptr;
  int (*destroy_)(Program* program) = nullptr;
};

}  // namespace tofu

#endif  // TOFU_KERNELS_NVRTC_H_
