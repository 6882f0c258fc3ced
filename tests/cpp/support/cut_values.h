// What a plan says of a step that cuts no dimension, as the tests' own counts read it.
#ifndef TOFU_TESTS_CPP_SUPPORT_CUT_VALUES_H_
#define TOFU_TESTS_CPP_SUPPORT_CUT_VALUES_H_

namespace tofu {

constexpr int kWhole = -1;       // the step cuts nothing
constexpr int kTermsOfSum = -3;  // the step's workers hold terms

}  // namespace tofu

#endif  // TOFU_TESTS_CPP_SUPPORT_CUT_VALUES_H_
