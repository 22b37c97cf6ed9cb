// What surrounds the mask: a photo made small for the network, and a mask made small for its file.
//
// Shapes and values are checked by trtpost/photos/scale.py and trtpost/masks/png.py, which alone call this.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace trtpost {

// One axis of a bilinear resize: both neighbours of each output, and the weight of the upper one.
struct Neighbours {
  const int64_t *lower, *upper;
  const float *weight;
  int count;
};

// uint8 [*, width, channels] to uint8 [rows.count, columns.count, channels], rounded half to even.
void bilinear_pixels(const uint8_t *photo, size_t width, int channels, const Neighbours &rows, const Neighbours &columns,
                     uint8_t *out);

// The zlib stream of a PNG of 1, 2, 4 or 8 bits a pixel whose rows are those of the mask, [height, width], with values
// that so many bits hold.
std::vector<uint8_t> deflate_mask(const uint8_t *mask, size_t height, size_t width, int bits);

}  // namespace trtpost
