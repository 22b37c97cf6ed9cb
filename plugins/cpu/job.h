// What a kernel is asked to do: plain data, filled in once by dispatch.cpp and shared by all threads.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace trtpost {

enum class Type : int { float32, float16, int8, uint8, int32, int64 };
enum class Head : int { argmax, threshold, labels };

constexpr int kPad = 64;  // elements that scratch rows hold beyond their width, so that vectors may read past the end

struct Job {
  // logits of [batch, channels, height, width], any strides (in bytes); labels have one channel
  const char *logits;
  Type type;
  int64_t batch_stride, channel_stride, row_stride, column_stride;
  int batch, channels, height, width;

  bool in_place;   // rows are float32 with neighbouring columns
  bool copy_rows;  // for bilinear, copy them all the same

  Head head;
  float threshold;
  bool bilinear;
  bool cells;  // evaluate bilinear by the cell rule; otherwise every class at every pixel

  // tables; the output rows of source row y are row_start[y] to row_start[y + 1], and so for columns
  int target_height, target_width;
  const int32_t *columns;                       // [W]: source index, for bilinear the lower neighbour
  const float *row_weights, *column_weights;    // [H], [W] of the upper neighbour; bilinear
  const int32_t *row_start, *column_start;      // [height + 1], [width + 1]
  const uint8_t *shuffles;                      // [W rounded up to 16], source bytes of 16 outputs; null: downscaling
  const int32_t *shuffle_bases;                 // [W / 16 rounded up]

  void *mask;  // [batch, H, W], uint8 or int32
  bool wide;
  uint8_t *margin;  // [batch, H, W], or null
  float margin_scale;

  int rows_per_chunk, chunks_per_image;
};

// Scratch memory of one thread, as offsets into one block; sizes in bytes.
struct Scratch {
  size_t planes[2];   // float [channels][plane_pitch]: source rows that were converted or copied
  size_t labels[2];   // uint8 or int32 [pitch]: ArgMax of source rows
  size_t margins;     // uint8 [pitch]
  size_t best, second, index;  // float, float, int32 [pitch of the wider side]
  size_t lerp;        // float [pitch]
  size_t tail[2];     // float [channels][16]: the last cells of a row, padded
  size_t differs;     // uint8 [pitch]: cells whose corners do not agree
  size_t candidates;  // int32 [8][channels]
  size_t edges;       // float [6][channels]
  size_t total;
  int pitch, plane_pitch;
};

using Kernel = void (*)(const Job &, const Scratch &, char *scratch, int chunk);

}  // namespace trtpost
