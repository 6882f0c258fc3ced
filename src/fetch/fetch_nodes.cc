#include "fetch/fetch_nodes.h"

namespace tofu {

bool IsDirect(const Node& node) { return node.attrs.count(kDirectAttr) > 0; }

FetchBundle BundleOf(const Node& fetch) { return ReadBundle(fetch.attrs.at(kSpecAttr)); }

}  // namespace tofu
