// The kernels of kernel.h on the host: loops over blocks and threads instead of a GPU. For tests: arithmetic, packing of the
// arguments, grid and block are the ones that the GPU gets.

#include "kernel.h"

namespace {

typedef void (*Loop)(const unsigned grid[3], const char *arguments);

constexpr size_t kArgumentBytes = 72;  // 3 pointers, 9 numbers and 4 bytes of padding, a pointer

// The next argument of a packed buffer, at its natural alignment.
template <typename A>
A next(const char *arguments, size_t &offset) {
  offset = (offset + sizeof(A) - 1) / sizeof(A) * sizeof(A);
  A value;
  memcpy(&value, arguments + offset, sizeof value);
  offset += sizeof value;
  return value;
}

template <typename T, typename L, bool bilinear>
void loop(const unsigned grid[3], const char *arguments) {
  size_t offset = 0;
  const auto logits = next<const typename T::Bits *>(arguments, offset);
  const auto rows = next<const float *>(arguments, offset);
  const auto columns = next<const float *>(arguments, offset);
  int32_t numbers[9];
  for (int32_t &number : numbers) number = next<int32_t>(arguments, offset);
  const auto mask = next<L *>(arguments, offset);
  static thread_local Tile<L> tile;
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        const Launch<T, L> launch =
            launch_of<T, L>(x, y, z, logits, rows, columns, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4],
                            numbers[5], numbers[6], numbers[7], numbers[8], mask);
        for (int32_t i = 0; i < kThreads; ++i) locate(launch, tile, Thread{i % kBlockX, i / kBlockX});
        for (int32_t i = 0; i < kThreads; ++i) label<bilinear>(launch, tile, Thread{i % kBlockX, i / kBlockX});
        for (int32_t i = 0; i < kThreads; ++i) write<bilinear>(launch, tile, Thread{i % kBlockX, i / kBlockX});
      }
}

struct Kernel {
  const char *name;
  Loop run;
};

#define KERNEL(name, T, L, bilinear) {#name, loop<T, L, bilinear>},
const Kernel kKernels[] = {TRTPOST_KERNELS(KERNEL)};

}  // namespace

// 0: done; 1: no such kernel; 2: the arguments have another size; 3: not the block that the kernels are written for.
extern "C" int trtpost_host_launch(const char *kernel, const unsigned grid[3], const unsigned block[3],
                                   const void *arguments, size_t size) {
  for (const Kernel &one : kKernels) {
    if (strcmp(one.name, kernel) != 0) continue;
    if (size != kArgumentBytes) return 2;
    if (block[0] != kBlockX || block[1] != kBlockY || block[2] != 1) return 3;
    one.run(grid, (const char *)arguments);
    return 0;
  }
  return 1;
}
