#include "fetch/fetch_bundle.h"

#include <algorithm>

namespace tofu {

int NumInputs(const FetchBundle& bundle) {
  size_t count = 0;
  for (const MultiFetchSpec& spec : bundle) count += spec.sources.size();
  return static_cast<int>(count);
}

std::string JoinSpecs(const std::vector<std::string>& specs) {
  std::string text;
  for (const std::string& spec : specs) {
    if (!text.empty()) text += '|';
    text += spec;
  }
  return text;
}

FetchBundle ReadBundle(const std::string& specs) {
  FetchBundle bundle;
  for (size_t begin = 0; begin <= specs.size();) {
    const size_t end = std::min(specs.find('|', begin), specs.size());
    bundle.push_back(ReadSpec(specs.substr(begin, end - begin)));
    begin = end + 1;
  }
  return bundle;
}

}  // namespace tofu
