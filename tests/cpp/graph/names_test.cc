#include "graph/names.h"

#include <gtest/gtest.h>

#include "support/example_graphs.h"

namespace tofu {
namespace {

// x, split (two outputs), and an operator whose name begins like the split's.
ExampleGraph Halves() {
  ExampleGraph example;
  const std::vector<NodeEntry> halves =
      example.Split("split", example.Variable("x", {4, 8}), 2);
  example.Head(example.Elementwise("split2", {halves[1]}), "output");
  return example;
}

TEST(Names, AFurtherOutputHasItsNumber) {
  ExampleGraph example = Halves();
  const Graph& graph = example.graph();
  std::vector<std::string> names;
  for (int e = 0; e < graph.num_entries(); ++e) names.push_back(EntryName(graph, e));
  EXPECT_EQ(names, (std::vector<std::string>{"x", "split", "split[1]", "split2"}));
}

TEST(Names, FindWhatTheyName) {
  ExampleGraph example = Halves();
  const Graph& graph = example.graph();
  for (int e = 0; e < graph.num_entries(); ++e) {
    EXPECT_EQ(FindEntry(graph, EntryName(graph, e)), e);
  }
  EXPECT_EQ(FindEntry(graph, "split[0]"), 1);
}

TEST(Names, NoOtherNameIsFound) {
  ExampleGraph example = Halves();
  for (const char* name : {"", "spli", "split[2]", "split[", "split[1", "split[-1]"}) {
    EXPECT_EQ(FindEntry(example.graph(), name), -1) << name;
  }
}

}  // namespace
}  // namespace tofu
