// Emitted kernels, compiled for the CPU (write_kernels.cc).
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_KERNELS_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_KERNELS_H_

namespace tofu {

// Runs a kernel with its own number of threads. `sources`: its TofuSources, as words;
// `boxes`: read by the generic kernel only.
using RunEmitted = void (*)(int blocks, char* region, const char* const* sources,
                            const long long* boxes);

// From now on, kernels run only this block; -1: all blocks.
void RunOnlyBlock(int block);

// The text of a kernel; several specifications may share one. The last has no `run`.
struct EmittedText {
  const char* source;
  RunEmitted run;
};

extern const EmittedText kEmittedTexts[];

// The function compiled from a text, or null.
inline RunEmitted FindEmitted(const char* source) {
  const auto same = [](const char* a, const char* b) {
    while (*a != '\0' && *a == *b) ++a, ++b;
    return *a == *b;
  };
  const EmittedText* text = kEmittedTexts;
  while (text->run != nullptr && !same(text->source, source)) ++text;
  return text->run;
}

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_KERNELS_H_
