#include "kernels/emitted/emitted_specs.h"

#include <random>

#include "support/random_fetch.h"

namespace tofu {
namespace {

constexpr unsigned kSeedsPerDtype = 4;
constexpr int kDtypes = 13;

}  // namespace

std::vector<MultiFetchSpec> EmittedSpecs() {
  std::vector<MultiFetchSpec> specs;
  for (int dtype = 0; dtype < kDtypes; ++dtype) {
    for (unsigned seed = 0; seed < kSeedsPerDtype; ++seed) {
      std::mt19937 random(kSeedsPerDtype * static_cast<unsigned>(dtype) + seed);
      const int64_t grains[] = {16, 1, 8, 5};
      specs.push_back(RandomSpec(dtype, &random, grains[seed % 4]));
    }
  }
  for (const char* text : {
           // One row, whose length is not a multiple of a vector.
           "dtype=0 shape=1027 sources=1027; pieces=0@0>0:1027",
           // Cells of one form, from several sources.
           "dtype=2 shape=8,64 sources=8,16;8,16;8,16;8,16; "
           "pieces=0@0,0>0,0:8,16;1@0,0>0,16:8,16;2@0,0>0,32:8,16;3@0,0>0,48:8,16",
           // Adjacent tiles of two widths.
           "dtype=0 shape=64,96 sources=64,64;64,32; "
           "pieces=0@0,0>0,0:64,64;1@0,0>0,64:64,32",
           // More rows than threads.
           "dtype=0 shape=3000,3 sources=3000,7; pieces=0@0,2>0,0:3000,3",
           // A number at rank 0, and a region without elements.
           "dtype=1 shape= sources=;; pieces=0@>:#0;1@>:#1 terms=2 reduce=prod",
           "dtype=1 shape=5 sources=5;5; pieces=0@0>0:5#0;1@0>0:5#1 terms=2 "
           "reduce=logsumexp",
           "dtype=6 shape=0,2 sources= pieces=",
           // A source so large that indices need 64 bits.
           "dtype=0 shape=2,5 sources=300000,4096; "
           "pieces=0@299998,4090>0,0:2,5",
           // The same, with rows so far apart that only the last index needs 64 bits.
           "dtype=0 shape=100,1,5 sources=100,3000,4096; "
           "pieces=0@0,2999,4090>0,0,0:100,1,5",
       }) {
    specs.push_back(ReadSpec(text));
  }
  return specs;
}

std::vector<WideSpec> WideSpecs() {
  constexpr int64_t kAll = 5000000000;
  constexpr int64_t kRow = int64_t{2} * 32768;
  return {
      {"dtype=3 shape=5000000000 sources=5000000000; pieces=0@0>0:5000000000", kAll, kAll,
       0},
      {"dtype=2 shape=70000,32768 sources=70000,32776; "
       "pieces=0@0,8>0,0:70000,32768",
       kRow, kRow + 16, 16},
      {"dtype=5 shape=5000000000 sources=5000000000;5000000000; "
       "pieces=0@0>0:5000000000#0;1@0>0:5000000000#1 terms=2 reduce=sum",
       kAll, kAll, 0},
  };
}

}  // namespace tofu
