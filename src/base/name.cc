#include "base/name.h"

#include <functional>
#include <mutex>
#include <set>

namespace tofu {

const std::string& Name::Empty() {
  static const auto* const empty = new std::string();  // outlives all static names
  return *empty;
}

const std::string& Name::Interned(std::string_view text) {
  if (text.empty()) return Empty();
  static auto* const mutex = new std::mutex();
  static auto* const texts = new std::set<std::string, std::less<>>();
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = texts->find(text);
  return found != texts->end() ? *found : *texts->emplace(text).first;
}

}  // namespace tofu
