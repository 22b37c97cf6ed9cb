// A photo at network resolution: the arithmetic of trtpost/kernels/reference.py's `bilinear`, step by step, then rounded.

#include <math.h>

#include "picture.h"

namespace trtpost {

void bilinear_pixels(const uint8_t *photo, size_t width, int channels, const Neighbours &rows, const Neighbours &columns,
                     uint8_t *out) {
  const size_t pitch = width * channels;
  for (int y = 0; y < rows.count; ++y) {
    const uint8_t *above = photo + rows.lower[y] * pitch, *below = photo + rows.upper[y] * pitch;
    const float down = rows.weight[y];
    for (int x = 0; x < columns.count; ++x) {
      const size_t left = columns.lower[x] * channels, right = columns.upper[x] * channels;
      const float across = columns.weight[x];
      for (int c = 0; c < channels; ++c) {
        const float from_above = above[left + c], from_below = below[left + c];
        const float upper = ((float)above[right + c] - from_above) * across + from_above;
        const float lower = ((float)below[right + c] - from_below) * across + from_below;
        *out++ = (uint8_t)lrintf((lower - upper) * down + upper);
      }
    }
  }
}

}  // namespace trtpost
