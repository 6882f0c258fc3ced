// Emitted kernels, compiled for the CPU (write_kernels.cc).
#ifndef TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_KERNELS_H_
#define TOFU_TESTS_CPP_KERNELS_EMITTED_EMITTED_KERNELS_H_

namespace tofu {

// Runs a kernel with its own number of threads. `sources` is its TofuSources, in words;
// only the generic kernel reads `boxes`.
using RunEmitted = void (*)(int blocks, char* region, long long* done,
                            const char* const* sources, const long long* boxes);

// From now on, kernels run only this one of their blocks; -1: all.
void RunOnlyBlock(int block);

// A text; kernels of several specifications may share one. The last has no `run`.
struct EmittedText {
  const char* source;
  RunEmitted run;
};

extern const EmittedText kEmittedTexts[];

// The function for a text; null if there is none.
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
