#include "fetch/fetch_bundle.h"

#include <algorithm>
#include <sstream>

namespace tofu {
namespace {

int CountRemote(const FetchBundle& bundle) {
  int count = 0;
  for (const MultiFetchSpec& spec : bundle.specs) count += spec.num_remote;
  return count;
}

std::vector<HandleElement> ReadHandles(const std::string& text) {
  std::vector<HandleElement> handles;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    HandleElement handle;
    char colon = 0;
    char at = 0;
    std::istringstream part(word);
    part >> handle.input >> colon >> handle.index >> at >> handle.owner;
    if (!part || colon != ':' || at != '@' || !part.eof() || handle.input < 0 ||
        handle.index < 0 || handle.owner < 0) {
      throw SpecError("handles: found \"" + word + "\", expected input:index@owner");
    }
    handles.push_back(handle);
  }
  return handles;
}

}  // namespace

int FetchBundle::num_handles() const {
  int count = 0;
  for (const HandleElement& handle : remote) count = std::max(count, handle.input + 1);
  return count;
}

int FetchBundle::num_inputs() const {
  int count = num_handles();
  for (const MultiFetchSpec& spec : specs) {
    count += static_cast<int>(spec.sources.size()) - spec.num_remote;
  }
  return count;
}

std::string JoinSpecs(const std::vector<std::string>& specs) {
  std::string text;
  for (const std::string& spec : specs) {
    if (!text.empty()) text += '|';
    text += spec;
  }
  return text;
}

std::string WriteHandles(const std::vector<HandleElement>& remote) {
  std::string text;
  for (const HandleElement& handle : remote) {
    if (!text.empty()) text += ' ';
    text += std::to_string(handle.input) + ':' + std::to_string(handle.index) + '@' +
            std::to_string(handle.owner);
  }
  return text;
}

FetchBundle ReadBundle(const std::string& specs, const std::string& handles) {
  FetchBundle bundle;
  for (size_t begin = 0; begin <= specs.size();) {
    const size_t end = std::min(specs.find('|', begin), specs.size());
    bundle.specs.push_back(ReadSpec(specs.substr(begin, end - begin)));
    begin = end + 1;
  }
  bundle.remote = ReadHandles(handles);
  const int expected = CountRemote(bundle);
  if (handles.empty()) {
    for (int i = 0; i < expected; ++i) bundle.remote.push_back({i, 0, 0});
  }
  if (static_cast<int>(bundle.remote.size()) != expected) {
    throw SpecError("handles: found " + std::to_string(bundle.remote.size()) +
                    ", expected one for each of the " + std::to_string(expected) +
                    " remote sources");
  }
  return bundle;
}

}  // namespace tofu
