// SHA-256 (FIPS 180-4) of a text, as 64 hexadecimal digits.
#ifndef TOFU_KERNELS_SHA256_H_
#define TOFU_KERNELS_SHA256_H_

#include <string>

namespace tofu {

std::string Sha256(const std::string& text);

}  // namespace tofu

#endif  // TOFU_KERNELS_SHA256_H_
