// Expects a part in a text.
#ifndef TOFU_TESTS_SUPPORT_EXPECT_TEXT_H_
#define TOFU_TESTS_SUPPORT_EXPECT_TEXT_H_

#include <gtest/gtest.h>

#include <string>

namespace tofu {

inline void ExpectText(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
}

}  // namespace tofu

#endif  // TOFU_TESTS_SUPPORT_EXPECT_TEXT_H_
