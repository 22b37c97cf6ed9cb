// 16-bit floats, as their bits, to float32: exact, NaN and infinities included.
#pragma once

#include "portable.h"

TRTPOST_FN float trtpost_from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

// By integer arithmetic, which every vector unit has.
TRTPOST_FN float trtpost_from_half(uint16_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = (uint32_t)(bits & 0x7fff) << 13;
  uint32_t wide = rest + (112u << 23);  // exponent bias 15 to 127
  const bool special = rest >= (31u << 23), tiny = rest < (1u << 23);
  wide = special ? wide + (112u << 23) : wide;
  const float denormal = (float)(int32_t)(rest >> 13) * 5.9604644775390625e-8f;  // 2^-24
  uint32_t denormal_bits;
  memcpy(&denormal_bits, &denormal, sizeof denormal_bits);
  return trtpost_from_bits((tiny ? denormal_bits : wide) | sign);
#endif
}

TRTPOST_FN float trtpost_from_bfloat16(uint16_t bits) { return trtpost_from_bits((uint32_t)bits << 16); }
