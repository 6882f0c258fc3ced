// What one _tofu_multifetch assembles: a region for every specification. Tiles on other
// workers are given by handles, arrays of addresses; a tile of the reader's own by the
// tile itself.
//
// Errors: SpecError for text that is not a bundle.
#ifndef TOFU_KERNELS_FETCH_BUNDLE_H_
#define TOFU_KERNELS_FETCH_BUNDLE_H_

#include <string>
#include <vector>

#include "kernels/multifetch_spec.h"

namespace tofu {

// Where the address of a remote tile is: element `index` of input number `input`.
struct HandleElement {
  int input = 0;
  int index = 0;
};

// The inputs are the handles, then the local tiles of all specifications in order.
struct FetchBundle {
  std::vector<MultiFetchSpec> specs;
  std::vector<HandleElement> remote;  // for the remote sources of all specs, in order

  int num_handles() const;
  int num_inputs() const;
};

// The specifications (multifetch_spec.h) separated by "|", and "input:index" for every
// remote source, separated by spaces.
std::string WriteSpecs(const FetchBundle& bundle);
std::string WriteHandles(const FetchBundle& bundle);

// Without `handles`, every remote source has an input of its own.
FetchBundle ReadBundle(const std::string& specs, const std::string& handles);

}  // namespace tofu

#endif  // TOFU_KERNELS_FETCH_BUNDLE_H_
