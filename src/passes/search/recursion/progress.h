// Reports of a search while it runs.
#ifndef TOFU_PASSES_SEARCH_RECURSION_PROGRESS_H_
#define TOFU_PASSES_SEARCH_RECURSION_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace tofu {

struct SearchProgress {
  std::string stage;        // what it does now, for readers
  int64_t best_cost = -1;   // of the best plan yet; -1: there is none
  int64_t lower_bound = 0;  // of all plans of these parts
};

// Called whenever one of them changes, from the thread that searches.
using ProgressCallback = std::function<void(const SearchProgress&)>;

}  // namespace tofu

#endif  // TOFU_PASSES_SEARCH_RECURSION_PROGRESS_H_
