#include "kernels/sha256.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace tofu {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr int kRounds = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, kRounds> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

using State = std::array<uint32_t, 8>;

uint32_t Rotated(uint32_t x, int by) { return (x >> by) | (x << (32 - by)); }

void AddBlock(const unsigned char* block, State* state) {
  std::array<uint32_t, kRounds> w{};
  for (size_t t = 0; t < 16; ++t) {
    for (size_t byte = 0; byte < 4; ++byte) w[t] = (w[t] << 8) | block[4 * t + byte];
  }
  for (size_t t = 16; t < kRounds; ++t) {
    const uint32_t a = Rotated(w[t - 15], 7) ^ Rotated(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t b = Rotated(w[t - 2], 17) ^ Rotated(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + a + w[t - 7] + b;
  }
  auto [a, b, c, d, e, f, g, h] = *state;
  for (size_t t = 0; t < kRounds; ++t) {
    const uint32_t first = h + (Rotated(e, 6) ^ Rotated(e, 11) ^ Rotated(e, 25)) +
                           ((e & f) ^ (~e & g)) + kConstants[t] + w[t];
    const uint32_t second =
        (Rotated(a, 2) ^ Rotated(a, 13) ^ Rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < added.size(); ++i) (*state)[i] += added[i];
}

// One bit 1, zeros, and the length in bits as a 64-bit number, up to whole blocks.
std::string Padded(const std::string& text) {
  std::string padded = text + '\x80';
  while (padded.size() % kBlockBytes != kBlockBytes - 8) padded += '\0';
  const uint64_t bits = uint64_t{8} * text.size();
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(bits >> shift);
  return padded;
}

}  // namespace

std::string Sha256(const std::string& text) {
  // The first 32 bits of the fractions of the square roots of the first 8 primes.
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::string padded = Padded(text);
  const auto* bytes = reinterpret_cast<const unsigned char*>(padded.data());
  for (size_t at = 0; at < padded.size(); at += kBlockBytes) AddBlock(bytes + at, &state);
  std::string digits;
  for (const uint32_t word : state) {
    char part[9];
    std::snprintf(part, sizeof(part), "%08x", word);
    digits += part;
  }
  return digits;
}

}  // namespace tofu
