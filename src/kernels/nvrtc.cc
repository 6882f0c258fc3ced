#include "kernels/nvrtc.h"

#include <algorithm>
#include <memory>
#include <type_traits>

namespace tofu {
namespace {

// Since CUDA 11.3, all of 11 is called 11.2. A driver runs older compilers' output.
std::vector<std::string> Names(const std::string& path) {
  if (!path.empty()) return {path};
  return {"libnvrtc.so.11.2", "libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"};
}

}  // namespace

Nvrtc::Nvrtc(const std::string& path)
    : library_(Names(path),
               "MultiFetch on GPUs compiles its kernels with NVRTC: install the CUDA "
               "toolkit or nvidia-cuda-nvrtc-cu11 and put its folder on "
               "LD_LIBRARY_PATH, or use TOFU_FETCH=plain") {
  library_.Find("nvrtcVersion", &version_of_);
  library_.Find("nvrtcGetNumSupportedArchs", &count_archs_);
  library_.Find("nvrtcGetSupportedArchs", &list_archs_);
  library_.Find("nvrtcGetErrorString", &error_text_);
  library_.Find("nvrtcCreateProgram", &create_);
  library_.Find("nvrtcCompileProgram", &compile_);
  library_.Find("nvrtcGetProgramLogSize", &log_size_);
  library_.Find("nvrtcGetProgramLog", &log_);
  library_.Find("nvrtcGetPTXSize", &ptx_size_);
  library_.Find("nvrtcGetPTX", &ptx_);
  library_.Find("nvrtcGetCUBINSize", &cubin_size_);
  library_.Find("nvrtcGetCUBIN", &cubin_);
  library_.Find("nvrtcDestroyProgram", &destroy_);
  int major = 0;
  int minor = 0;
  Check(version_of_(&major, &minor), "reporting its version");
  version_ = std::to_string(major) + "." + std::to_string(minor);
  int count = 0;
  Check(count_archs_(&count), "counting architectures");
  archs_.resize(static_cast<size_t>(count));
  Check(list_archs_(archs_.data()), "listing architectures");
  std::sort(archs_.begin(), archs_.end());
}

const Nvrtc& Nvrtc::Default() {
  static const auto* const nvrtc = new Nvrtc;
  return *nvrtc;
}

std::string Nvrtc::Target(int arch) const {
  const auto newer = std::upper_bound(archs_.begin(), archs_.end(), arch);
  if (newer == archs_.begin()) {
    throw CudaError("NVRTC " + version_ + " compiles for compute capability " +
                    std::to_string(archs_.empty() ? 0 : archs_.front()) +
                    " and later, but the device has " + std::to_string(arch) +
                    "; install an older CUDA, or use TOFU_FETCH=plain");
  }
  const int known = *(newer - 1);
  return (known == arch ? "sm_" : "compute_") + std::to_string(known);
}

std::string Nvrtc::Compile(const std::string& source, const std::string& target) const {
  Program program = nullptr;
  Check(create_(&program, source.c_str(), "tofu_fetch.cu", 0, nullptr, nullptr),
        "creating a program");
  const auto destroy = [this](Program given) { destroy_(&given); };
  const std::unique_ptr<std::remove_pointer_t<Program>, decltype(destroy)> owner(program,
                                                                                 destroy);
  const std::string arch = "--gpu-architecture=" + target;
  const char* const options[] = {arch.c_str(), "--std=c++11"};
  if (const int result = compile_(program, 2, options); result != 0) {
    size_t size = 0;
    Check(log_size_(program, &size), "reporting why a program does not compile");
    std::string log(size, '\0');
    Check(log_(program, log.data()), "reporting why a program does not compile");
    throw CudaError("NVRTC " + version_ + " rejects a kernel of tofu's for " + target +
                    ": " + error_text_(result) + "\n" + log.c_str());
  }
  const bool is_ptx = target.rfind("compute_", 0) == 0;
  size_t size = 0;
  Check(is_ptx ? ptx_size_(program, &size) : cubin_size_(program, &size),
        "reporting the size of a kernel");
  std::string image(size, '\0');
  Check(is_ptx ? ptx_(program, image.data()) : cubin_(program, image.data()),
        "returning a kernel");
  return image;
}

void Nvrtc::Check(int result, const char* doing) const {
  if (result == 0) return;
  throw CudaError("NVRTC failed at " + std::string(doing) + ": " + error_text_(result));
}

}  // namespace tofu
