#include "base/name.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tofu {
namespace {

TEST(Name, EqualTextsAreOneName) {
  const std::string text = "a text that is too long to lie in a string itself";
  Name name(text);
  EXPECT_EQ(name, Name(std::string(text)));
  EXPECT_EQ(name.id(), Name(text).id());
  EXPECT_EQ(name, text);
  EXPECT_EQ(name.text(), text);
  EXPECT_NE(name, Name("other"));
  EXPECT_NE(name, "other");
  name = "other";
  EXPECT_EQ(name, "other");
  EXPECT_LT(Name("a"), Name("b"));
}

TEST(Name, IsEmptyAtFirst) {
  EXPECT_TRUE(Name().empty());
  EXPECT_EQ(Name(), Name(""));
  EXPECT_EQ(Name(), "");
  EXPECT_FALSE(Name("x").empty());
}

TEST(Name, ThreadsGetTheSameNames) {
  constexpr int kThreads = 4;
  constexpr int kNames = 500;
  std::vector<std::vector<const void*>> ids(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&ids, t] {
      for (int i = 0; i < kNames; ++i) {
        ids[t].push_back(Name("thread name " + std::to_string(i)).id());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(ids[t], ids[0]);
  EXPECT_EQ(std::set<const void*>(ids[0].begin(), ids[0].end()).size(), kNames);
}

}  // namespace
}  // namespace tofu
