// What a GPU has instructions for, and what stands for it on the host.
#pragma once

#include "../common/portable.h"

#define TRTPOST_PRAGMA(text) _Pragma(#text)
#if defined(__CUDACC__)
#define TRTPOST_UNROLL(count) TRTPOST_PRAGMA(unroll count)
#else
#define TRTPOST_UNROLL(count) TRTPOST_PRAGMA(GCC unroll count)
#endif

#define TRTPOST_INFINITY trtpost_from_bits(0x7f800000)

// From memory that nothing writes to while the kernel runs.
template <typename V>
TRTPOST_FN V trtpost_load(const V *from) {
#if defined(__CUDA_ARCH__)
  return __ldg(from);
#else
  return *from;
#endif
}

// To an address that is a multiple of 16.
TRTPOST_FN void trtpost_store_16_bytes(void *to, uint64_t low, uint64_t high) {
#if defined(__CUDA_ARCH__)
  *(ulonglong2 *)to = make_ulonglong2(low, high);
#else
  const uint64_t halves[2] = {low, high};
  memcpy(__builtin_assume_aligned(to, 16), halves, sizeof halves);
#endif
}
