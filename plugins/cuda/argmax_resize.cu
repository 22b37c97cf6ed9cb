// The kernels of kernel.h as CUDA entry points.

#include "kernel.h"

#define KERNEL(name, T, L, bilinear)                                                         \
  extern "C" __global__ void __launch_bounds__(kThreads, 3) name(TRTPOST_PARAMETERS(T, L)) {    \
    __shared__ Tile<L> tile;                                                                 \
    const Launch<T, L> launch =                                                              \
        launch_of<T, L>(blockIdx.x, blockIdx.y, blockIdx.z, TRTPOST_ARGUMENTS);              \
    const Thread thread = {(int32_t)threadIdx.x, (int32_t)threadIdx.y};                      \
    locate(launch, tile, thread);                                                            \
    __syncthreads();                                                                         \
    label<bilinear>(launch, tile, thread);                                                   \
    __syncthreads();                                                                         \
    write<bilinear>(launch, tile, thread);                                                   \
  }

TRTPOST_KERNELS(KERNEL)
