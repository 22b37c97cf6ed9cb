// Index arithmetic of the pixel conventions, for every kernel; the reference is trtpost/kernels/reference.py.
//
// w is the source size, W the output size, j the output index. The precision of every step is part of the convention.
// Compile without contraction of a * b + c (-ffp-contract=off, --fmad=false): a fused step rounds differently.
#pragma once

#include "portable.h"

enum TrtpostMatch {
  TRTPOST_MATCH_TF = 0,             // nearest and bilinear: half-pixel centres
  TRTPOST_MATCH_TF1 = 1,            // nearest and bilinear: pixels at integers; torch's nearest
  TRTPOST_MATCH_OPENCV = 2,         // nearest, in float64
  TRTPOST_MATCH_PIL = 3,            // nearest, in float64, by repeated addition: only as a table
  TRTPOST_MATCH_ALIGN_CORNERS = 4,  // bilinear: ends on ends
};

// Source index of output index j; PIL has no closed form, see trtpost_pil_table.
TRTPOST_FN int32_t trtpost_nearest(int32_t j, int32_t w, int32_t W, int match) {
  double position;
  if (match == TRTPOST_MATCH_OPENCV) {
    position = floor((double)j * (1.0 / ((double)W / (double)w)));
  } else {
    const float scale = (float)w / (float)W;
    const float centre = match == TRTPOST_MATCH_TF ? (float)j + 0.5f : (float)j;
    position = (double)floorf(centre * scale);
  }
  return position < (double)(w - 1) ? (int32_t)position : w - 1;
}

// Pillow adds the scale up from left to right, and its rounding errors with it.
TRTPOST_FN void trtpost_pil_table(int32_t *table, int32_t w, int32_t W) {
  const double step = (double)w / (double)W;
  double position = step / 2;
  for (int32_t j = 0; j < W; ++j) {
    const double down = floor(position);
    table[j] = down < (double)(w - 1) ? (int32_t)down : w - 1;
    position += step;
  }
}

// Lower neighbour of output index j, and in *weight the share of the upper one (the lower one plus 1, at most w - 1).
TRTPOST_FN int32_t trtpost_linear(int32_t j, int32_t w, int32_t W, int match, float *weight) {
  float position;
  if (match == TRTPOST_MATCH_ALIGN_CORNERS) {
    position = (float)j * ((float)(w - 1) / (float)(W > 1 ? W - 1 : 1));
  } else {
    const float scale = (float)w / (float)W;
    position = match == TRTPOST_MATCH_TF1 ? (float)j * scale : ((float)j + 0.5f) * scale - 0.5f;
  }
  const float last = (float)(w - 1);
  position = position < 0.0f ? 0.0f : position > last ? last : position;
  const int32_t lower = (int32_t)position;
  *weight = position - (float)lower;
  return lower;
}
