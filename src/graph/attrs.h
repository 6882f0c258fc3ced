// The attributes of a node. Copies of the node share them.
#ifndef TOFU_GRAPH_ATTRS_H_
#define TOFU_GRAPH_ATTRS_H_

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace tofu {

// A map from names to texts. A copy shares the map until either changes.
class Attrs {
 public:
  using Map = std::map<std::string, std::string>;

  Attrs() = default;
  Attrs(Map map)  // NOLINT: a map is the attributes' value
      : map_(map.empty() ? nullptr : std::make_shared<Map>(std::move(map))) {}
  Attrs(std::initializer_list<Map::value_type> items) : Attrs(Map(items)) {}

  const Map& map() const {
    static const Map none;
    return map_ ? *map_ : none;
  }
  bool empty() const { return map().empty(); }
  size_t size() const { return map().size(); }
  Map::const_iterator begin() const { return map().begin(); }
  Map::const_iterator end() const { return map().end(); }
  Map::const_iterator find(const std::string& name) const { return map().find(name); }
  size_t count(const std::string& name) const { return map().count(name); }
  const std::string& at(const std::string& name) const { return map().at(name); }

  std::string& operator[](const std::string& name) { return Own()[name]; }
  void erase(const std::string& name) {
    if (count(name) > 0) Own().erase(name);
  }

  friend bool operator==(const Attrs& a, const Attrs& b) { return a.map() == b.map(); }
  friend bool operator!=(const Attrs& a, const Attrs& b) { return !(a == b); }

 private:
  Map& Own() {
    if (!map_) {
      map_ = std::make_shared<Map>();
    } else if (map_.use_count() > 1) {
      map_ = std::make_shared<Map>(*map_);
    }
    return *map_;
  }

  std::shared_ptr<Map> map_;  // null: empty
};

}  // namespace tofu

#endif  // TOFU_GRAPH_ATTRS_H_
