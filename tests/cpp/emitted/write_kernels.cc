// Writes the kernels of EmittedSpecs() as C++ for the CPU:
//
//   tofu_write_kernels emitted_kernels.cc
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "emitted/emitted_specs.h"
#include "kernels/cuda_generic.h"
#include "kernels/cuda_source.h"

namespace {

// Texts that were written before, by their number; equal ones are compiled once.
using Written = std::map<std::string, std::string>;

// Writes a kernel, each in a namespace of its own, and returns the function that runs it.
std::string Write(const tofu::CudaKernel& kernel, Written* written, std::ostream* out) {
  const auto [found, is_new] =
      written->emplace(kernel.source, std::to_string(written->size()));
  const std::string place = "kernel" + found->second;
  const std::string run = place + "::Run" + std::to_string(kernel.blocks);
  if (is_new) {
    *out << "#define tofu_fetch tofu_fetch" << found->second << "\nnamespace " << place
         << " {\n"
         << kernel.source << "}\n#undef tofu_fetch\n";
  }
  const auto [launch, is_new_launch] = written->emplace(run, "");
  if (!is_new_launch) return run;
  *out << "namespace " << place << " {\nvoid Run" << kernel.blocks
       << "(char* region, long long* done, const char* const* given, const long long* "
          "boxes) {\n  TofuSources sources;\n"
       << "  std::copy(given, given + " << kernel.num_sources << ", sources.at);\n"
       << "  tofu_cuda::Launch(" << kernel.blocks << ", " << kernel.threads
       << ", [&] { tofu_fetch" << found->second << "(region, done, sources"
       << (kernel.boxes.empty() ? "); (void)boxes;" : ", boxes);") << " });\n}\n}\n";
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tofu_write_kernels FILE\n";
    return 2;
  }
  std::ofstream out(argv[1]);
  out << "#include <algorithm>\n#include \"emitted/cuda_on_cpu.h\"\n"
         "#include \"emitted/emitted_kernels.h\"\n";
  Written written;
  std::string table;
  for (const tofu::MultiFetchSpec& spec : tofu::EmittedSpecs()) {
    const auto own = tofu::EmitCuda(spec);
    table += "    {" + (own ? Write(*own, &written, &out) : "nullptr") + ", " +
             Write(tofu::EmitGenericCuda(spec), &written, &out) + "},\n";
  }
  out << "const tofu::EmittedKernel tofu::kEmittedKernels[] = {\n" << table << "};\n";
  return out.good() ? 0 : 1;
}
