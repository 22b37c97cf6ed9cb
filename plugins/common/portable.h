// What makes the same source compile as C++ for the host and as CUDA, by nvcc or by NVRTC, which has no system headers.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#if defined(__CUDACC__)
#define TRTPOST_MEMBER __host__ __device__ inline
#else
#define TRTPOST_MEMBER inline
#endif
#define TRTPOST_FN static TRTPOST_MEMBER  // static also where it is a member: types of numbers have no objects
