// The regions that one _tofu_multifetch assembles, one per specification. Handles, arrays
// of addresses, stand for tiles on other workers; the reader's own tiles are passed
// directly.
//
// Errors: SpecError for text that is not a bundle.
#ifndef TOFU_FETCH_FETCH_BUNDLE_H_
#define TOFU_FETCH_FETCH_BUNDLE_H_

#include <string>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// The place of a remote tile's handle, element `index` of input number `input`, and the
// worker that publishes it.
struct HandleElement {
  int input = 0;
  int index = 0;
  int owner = 0;
};

// The inputs are the handles, then the local tiles of all specifications in order.
struct FetchBundle {
  std::vector<MultiFetchSpec> specs;
  std::vector<HandleElement> remote;  // for the remote sources of all specs, in order

  int num_handles() const;
  int num_inputs() const;
};

// Joins the texts of specifications (multifetch_spec.h) by "|".
std::string JoinSpecs(const std::vector<std::string>& specs);

// Writes "input:index@owner" for every remote source, separated by spaces.
std::string WriteHandles(const std::vector<HandleElement>& remote);

// If `handles` is empty, each handle has its own input, in order, and worker 0 owns all.
FetchBundle ReadBundle(const std::string& specs, const std::string& handles);

}  // namespace tofu

#endif  // TOFU_FETCH_FETCH_BUNDLE_H_
