// Half-precision numbers on CPUs without instructions for them. The loops have
// no branches, so compilers can vectorise them.
#ifndef TOFU_KERNELS_HALF_H_
#define TOFU_KERNELS_HALF_H_

#include <cstdint>
#include <cstring>

namespace tofu {

// IEEE binary16.
struct Float16 {
  uint16_t bits;
};

// The upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

inline float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float ToFloat(BFloat16 half) {
  return FloatOfBits(static_cast<uint32_t>(half.bits) << 16);
}

inline float ToFloat(Float16 half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half.bits & 0x7fffu) << 13;
  // The exponent's bias differs by 112. Infinities and NaNs have all exponent
  // bits set in both; a product makes subnormal numbers normal.
  const float scaled = FloatOfBits(rest) * FloatOfBits(0x77800000u);  // 2^112
  const uint32_t finite = BitsOfFloat(scaled);
  const uint32_t special = rest | 0x7f800000u;
  return FloatOfBits(sign | (rest >= 0x0f800000u ? special : finite));
}

// Rounds to nearest, ties to even.
inline BFloat16 ToBFloat16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded)};
}

inline Float16 ToFloat16(float value) {
  const uint32_t bits = BitsOfFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: rebias the exponent, then round away 13 bits of the fraction.
  const uint32_t normal =
      (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal: adding 1/2 puts the fraction where a sum rounds it.
  const uint32_t subnormal = BitsOfFloat(FloatOfBits(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and more: infinity
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace tofu

#endif  // TOFU_KERNELS_HALF_H_
