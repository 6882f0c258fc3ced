// The regions that one _tofu_multifetch assembles, one per specification.
//
// Errors: SpecError for text that is not a bundle.
#ifndef TOFU_FETCH_FETCH_BUNDLE_H_
#define TOFU_FETCH_FETCH_BUNDLE_H_

#include <string>
#include <vector>

#include "fetch/multifetch_spec.h"

namespace tofu {

// The inputs are the tiles of all specifications, in order.
using FetchBundle = std::vector<MultiFetchSpec>;

int NumInputs(const FetchBundle& bundle);

// Joins the texts of specifications (multifetch_spec.h) by "|".
std::string JoinSpecs(const std::vector<std::string>& specs);

FetchBundle ReadBundle(const std::string& specs);

}  // namespace tofu

#endif  // TOFU_FETCH_FETCH_BUNDLE_H_
