// Writes the kernels of EmittedSpecs() as C++ for the CPU:
//
//   tofu_write_kernels emitted_kernels.cc
#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda_generic.h"
#include "kernels/cuda_source.h"
#include "kernels/emitted/emitted_specs.h"

namespace {

// A text as several C++ literals, because compilers limit the length of one.
std::string Literals(const std::string& text) {
  std::string literals;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    literals += " R\"~(" + text.substr(begin, end - begin) + ")~\"";
    begin = end;
  }
  return literals;
}

// Writes a kernel in its own namespace, with a function that runs it.
void Write(const tofu::CudaKernel& kernel, const std::string& number, std::ostream* out) {
  const std::string boxes = kernel.boxes.empty() ? "" : ", boxes";
  *out << "#define tofu_fetch tofu_fetch" << number << "\nnamespace kernel" << number
       << " {\n"
       << kernel.source
       << "void Run(int blocks, char* region, const char* const* given,\n"
          "         const long long* boxes) {\n  TofuSources sources;\n"
          "  std::memcpy(&sources, given, sizeof(sources));\n  tofu_cuda::Launch(blocks, "
       << kernel.threads << ", [&] { tofu_fetch(region, sources" << boxes
       << "); });\n}\nconst char kText[] = " << Literals(kernel.source)
       << ";\n}\n#undef tofu_fetch\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tofu_write_kernels FILE\n";
    return 2;
  }
  std::ofstream out(argv[1]);
  out << "#include <cmath>\n#include <cstring>\n#include "
         "\"kernels/emitted/cuda_on_cpu.h\"\n"
         "#include \"kernels/emitted/emitted_kernels.h\"\n";
  std::set<std::string> written;
  std::string table;
  const auto write = [&](const tofu::CudaKernel& kernel) {
    const std::string number = std::to_string(written.size());
    if (!written.insert(kernel.source).second) return;
    Write(kernel, number, &out);
    table.append("    {kernel").append(number).append("::kText, kernel");
    table.append(number).append("::Run},\n");
  };
  std::vector<tofu::MultiFetchSpec> specs = tofu::EmittedSpecs();
  for (const tofu::WideSpec& wide : tofu::WideSpecs()) {
    specs.push_back(tofu::ReadSpec(wide.text));
  }
  for (const tofu::MultiFetchSpec& spec : specs) {
    if (const auto own = tofu::EmitCuda(spec)) write(*own);
    write(tofu::EmitGenericCuda(spec));
  }
  out << "void tofu::RunOnlyBlock(int block) { tofu_cuda::only_block = block; }\n"
         "const tofu::EmittedText tofu::kEmittedTexts[] = {\n"
      << table << "    {nullptr, nullptr},\n};\n";
  return out.good() ? 0 : 1;
}
