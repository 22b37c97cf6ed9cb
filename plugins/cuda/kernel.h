// The fused ArgMax and Resize as CUDA: one launch from logits to the mask.
//
// A block of threads owns a tile of the mask. It computes the ArgMax of the source pixels below the tile once, into shared
// memory, and writes the tile from there, sixteen pixels to a store: `nearest` picks labels, `bilinear` fills the cells whose
// corners agree and evaluates the others (the cell rule, ../common/cell.h). Where the mask is smaller than the logits the
// source pixels below a tile do not fit, and each pixel is evaluated for itself.
//
// Where each pixel lies in the logits is not computed here: `rows` [H] and `columns` [W] hold source positions in float32,
// in ascending order, as trtpost/kernels makes them. So every pixel convention and region is the caller's, bit for bit.
//
// The phases below run for each thread of a block, with a barrier between them. argmax_resize.cu makes CUDA kernels of them,
// host.cpp loops over blocks and threads, so that tests run the same source on a machine without a GPU.
// Compile without contraction of a * b + c (--fmad=false, -ffp-contract=off), as on the CPU.
#pragma once

#include "../common/cell.h"
#include "../common/half.h"
#include "device.h"

enum Sizes : int {
  kRun = 16,     // pixels that a thread writes at once: 16 bytes of uint8
  kBlockX = 16,  // runs side by side
  kBlockY = 16,  // rows of threads
  kThreads = kBlockX * kBlockY,
  kTileHeight = 2 * kBlockY,
  kTileWidth = kBlockX * kRun,
  // runs begin where stores are aligned, so the first one of a row may begin up to 15 pixels left of the tile
  kLead = kRun - 1,
  kColumns = kLead + kTileWidth,
  kHeld = (kTileHeight + 2) * (kColumns + 2),  // as many source pixels as lie below a tile that is not shrunk
  kTogether = 8,  // pixels of one cell that are evaluated together
};

enum class Head : int32_t { argmax, threshold };

// Types of logits, as their bits.
struct Float32 {
  typedef float Bits;
  TRTPOST_FN float value(float bits) { return bits; }
};
struct Float16 {
  typedef uint16_t Bits;
  TRTPOST_FN float value(uint16_t bits) { return trtpost_from_half(bits); }
};
struct Bfloat16 {
  typedef uint16_t Bits;
  TRTPOST_FN float value(uint16_t bits) { return trtpost_from_bfloat16(bits); }
};

// A launch, as one block sees it. Logits are those of the block's image; offsets in elements.
template <typename T, typename L>
struct Launch {
  const typename T::Bits *logits;
  const float *rows, *columns;
  int32_t channels, height, width, target_height, target_width;
  int32_t channel_step, row_step, column_step;
  Head head;
  float threshold;
  L *mask;             // of all images
  int64_t first_row;   // of the block's image in the mask, counted in rows
  int32_t tile_row, tile_column;  // of the mask, where the tile begins; the column may be negative
};

struct Thread {
  int32_t x, y;
  TRTPOST_MEMBER int32_t index() const { return y * kBlockX + x; }
};

// What the threads of a block share.
template <typename L>
struct Tile {
  int32_t rows[kTileHeight], columns[kColumns];  // source pixel at or before each position
  float row_weights[kTileHeight], column_weights[kColumns];
  L labels[kHeld];
};

// The source pixels below a tile; `held` where their labels are in the tile.
struct Below {
  int32_t row, column, height, width;
  bool held;
};

template <bool bilinear, typename T, typename L>
TRTPOST_FN Below below_tile(const Launch<T, L> &launch, const Tile<L> &tile) {
  const int32_t reach = bilinear ? 2 : 1;
  const int32_t bottom = tile.rows[kTileHeight - 1] + reach, right = tile.columns[kColumns - 1] + reach;
  Below below = {tile.rows[0], tile.columns[0], 0, 0, false};
  below.height = (bottom < launch.height ? bottom : launch.height) - below.row;
  below.width = (right < launch.width ? right : launch.width) - below.column;
  // by division, because the product of the two could overflow
  below.held = below.height > 0 && below.width > 0 && below.width <= kHeld / below.height;
  return below;
}

// ---- phase 1: positions --------------------------------------------------------------------------------------------

// Source pixel and weight of the next one; positions beyond the logits are taken as their edge.
TRTPOST_FN int32_t source_of(float position, int32_t size, float *weight) {
  const float last = (float)(size - 1);
  position = position > 0.0f ? position : 0.0f;  // NaN too
  position = position < last ? position : last;
  const int32_t lower = (int32_t)position;
  *weight = position - (float)lower;
  return lower;
}

template <typename T, typename L>
TRTPOST_FN void locate(const Launch<T, L> &launch, Tile<L> &tile, Thread thread) {
  for (int32_t i = thread.index(); i < kColumns; i += kThreads) {
    int32_t column = launch.tile_column + i;
    column = column < 0 ? 0 : column < launch.target_width ? column : launch.target_width - 1;
    tile.columns[i] = source_of(launch.columns[column], launch.width, &tile.column_weights[i]);
  }
  for (int32_t i = thread.index(); i < kTileHeight; i += kThreads) {
    int32_t row = launch.tile_row + i;
    row = row < launch.target_height ? row : launch.target_height - 1;
    tile.rows[i] = source_of(launch.rows[row], launch.height, &tile.row_weights[i]);
  }
}

// ---- phase 2: labels -----------------------------------------------------------------------------------------------

// ArgMax of one source pixel; ties go to the lower class, NaN never wins.
template <typename T, typename L>
TRTPOST_FN int32_t label_at(const Launch<T, L> &launch, int32_t row, int32_t column) {
  const typename T::Bits *at = launch.logits + row * launch.row_step + column * launch.column_step;
  if (launch.head == Head::threshold) return T::value(trtpost_load(at)) > launch.threshold;
  float best = -TRTPOST_INFINITY;
  int32_t label = 0;
  TRTPOST_UNROLL(8)
  for (int32_t c = 0; c < launch.channels; ++c, at += launch.channel_step) {
    const float value = T::value(trtpost_load(at));
    label = value > best ? c : label;
    best = value > best ? value : best;
  }
  return label;
}

template <bool bilinear, typename T, typename L>
TRTPOST_FN void label(const Launch<T, L> &launch, Tile<L> &tile, Thread thread) {
  const Below below = below_tile<bilinear>(launch, tile);
  if (!below.held) return;
  const int32_t count = below.height * below.width;
  for (int32_t i = thread.index(); i < count; i += kThreads) {
    const int32_t row = i / below.width;
    tile.labels[i] = (L)label_at(launch, below.row + row, below.column + (i - row * below.width));
  }
}

// ---- phase 3: the mask ---------------------------------------------------------------------------------------------

// The four corners of a cell; at the edge of the logits the last row or column is its own neighbour.
template <typename Bits>
struct Corners {
  const Bits *a, *b, *c, *d;  // upper left, upper right, lower left, lower right
};

template <typename T>
TRTPOST_FN float corner(const typename T::Bits *plane, int32_t offset) {
  return trtpost_limited(T::value(trtpost_load(plane + offset)));
}

// A value that the best class does not fall below anywhere in the cell: the largest of the smallest corners of the four
// labels. A class whose corners all lie below it cannot win.
template <typename T, typename L>
TRTPOST_FN float floor_of(const Launch<T, L> &launch, const Corners<typename T::Bits> &cell, const int32_t labels[4]) {
  float floor = -TRTPOST_LIMIT;
  TRTPOST_UNROLL(8)
  for (int k = 0; k < 4; ++k) {
    const int32_t offset = labels[k] * launch.channel_step;
    const float a = corner<T>(cell.a, offset), b = corner<T>(cell.b, offset);
    const float c = corner<T>(cell.c, offset), d = corner<T>(cell.d, offset);
    const float ab = a < b ? a : b, cd = c < d ? c : d, low = ab < cd ? ab : cd;
    floor = low > floor ? low : floor;
  }
  return floor;
}

// Up to kTogether pixels of one cell: every class that reaches `floor`, at every pixel.
template <typename T, typename L>
TRTPOST_FN void evaluate(const Launch<T, L> &launch, const Corners<typename T::Bits> &cell, float floor, float down,
                         const float across[kTogether], int32_t labels[kTogether]) {
  float best[kTogether];
  TRTPOST_UNROLL(8)
  for (int k = 0; k < kTogether; ++k) best[k] = -TRTPOST_INFINITY, labels[k] = 0;
  int32_t offset = 0;
  for (int32_t channel = 0; channel < launch.channels; ++channel, offset += launch.channel_step) {
    const float a = corner<T>(cell.a, offset), b = corner<T>(cell.b, offset);
    const float c = corner<T>(cell.c, offset), d = corner<T>(cell.d, offset);
    const float ab = a > b ? a : b, cd = c > d ? c : d;
    if ((ab > cd ? ab : cd) < floor) continue;
    const float from = trtpost_lerp(a, c, down), step = trtpost_lerp(b, d, down) - from;
  TRTPOST_UNROLL(8)
    for (int k = 0; k < kTogether; ++k) {
      const float value = from + across[k] * step;
      labels[k] = value > best[k] ? channel : labels[k];
      best[k] = value > best[k] ? value : best[k];
    }
  }
  if (launch.head != Head::threshold) return;
  TRTPOST_UNROLL(8)
  for (int k = 0; k < kTogether; ++k) labels[k] = best[k] > launch.threshold;
}

// Sixteen labels on their way to memory: uint8 is packed and stored at once, wide labels go one by one.
struct Packed {
  uint64_t low, high;
};

TRTPOST_FN void put(Packed &packed, uint8_t *, int32_t k, int32_t label) {
  const uint64_t byte = (uint64_t)(uint32_t)label << (8 * (k & 7));
  packed.low |= k < 8 ? byte : 0;  // selected, not indexed: an index would move it out of the registers
  packed.high |= k < 8 ? 0 : byte;
}
TRTPOST_FN void put(Packed &, int32_t *to, int32_t k, int32_t label) { to[k] = label; }

TRTPOST_FN void flush(const Packed &packed, uint8_t *to, int32_t first, int32_t last) {
  if (last - first == kRun) {
    trtpost_store_16_bytes(to, packed.low, packed.high);
    return;
  }
  for (int32_t k = first; k < last; ++k) to[k] = (uint8_t)((k < 8 ? packed.low : packed.high) >> (8 * (k & 7)));
}
TRTPOST_FN void flush(const Packed &, int32_t *, int32_t, int32_t) {}

// Pixels `first` to `last` of the run whose first pixel would be tile column `from`, at `to`.
template <typename T, typename L>
TRTPOST_FN void nearest_run(const Launch<T, L> &launch, const Tile<L> &tile, const Below &below, int32_t row, int32_t from,
                            int32_t first, int32_t last, L *to) {
  Packed packed = {0, 0};
  const int32_t source = tile.rows[row];
  const L *labels = tile.labels + (source - below.row) * below.width - below.column;
  for (int32_t k = first; k < last; ++k) {
    const int32_t column = tile.columns[from + k];
    put(packed, to, k, below.held ? (int32_t)labels[column] : label_at(launch, source, column));
  }
  flush(packed, to, first, last);
}

template <typename T, typename L>
TRTPOST_FN void bilinear_run(const Launch<T, L> &launch, const Tile<L> &tile, const Below &below, int32_t row, int32_t from,
                             int32_t first, int32_t last, L *to) {
  Packed packed = {0, 0};
  const int32_t upper = tile.rows[row], lower = upper + 1 < launch.height ? upper + 1 : upper;
  const L *upper_labels = tile.labels + (upper - below.row) * below.width - below.column;
  const L *lower_labels = tile.labels + (lower - below.row) * below.width - below.column;
  int32_t k = first;
  while (k < last) {
    // the pixels that lie in the same cell
    const int32_t left = tile.columns[from + k], right = left + 1 < launch.width ? left + 1 : left;
    int32_t end = k + 1;
    while (end < last && end - k < kTogether && tile.columns[from + end] == left) ++end;

    int32_t corners[4] = {0, 0, 0, 0};
    if (below.held) {
      corners[0] = upper_labels[left], corners[1] = upper_labels[right];
      corners[2] = lower_labels[left], corners[3] = lower_labels[right];
      if (corners[0] == corners[1] && corners[0] == corners[2] && corners[0] == corners[3]) {
        for (; k < end; ++k) put(packed, to, k, corners[0]);
        continue;
      }
    }
    const typename T::Bits *above = launch.logits + upper * launch.row_step;
    const typename T::Bits *under = launch.logits + lower * launch.row_step;
    const int32_t at = left * launch.column_step, next = right * launch.column_step;
    const Corners<typename T::Bits> cell = {above + at, above + next, under + at, under + next};
    const bool bounded = below.held && launch.head == Head::argmax;
    float across[kTogether];
    int32_t labels[kTogether];
  TRTPOST_UNROLL(8)
    for (int i = 0; i < kTogether; ++i) across[i] = tile.column_weights[from + (k + i < end ? k + i : end - 1)];
    evaluate(launch, cell, bounded ? floor_of(launch, cell, corners) : -TRTPOST_INFINITY, tile.row_weights[row], across,
             labels);
  TRTPOST_UNROLL(8)
    for (int i = 0; i < kTogether; ++i)
      if (k + i < end) put(packed, to, k + i, labels[i]);
    k = end;
  }
  flush(packed, to, first, last);
}

template <bool bilinear, typename T, typename L>
TRTPOST_FN void write(const Launch<T, L> &launch, const Tile<L> &tile, Thread thread) {
  const Below below = below_tile<bilinear>(launch, tile);
  for (int32_t row = thread.y; row < kTileHeight && launch.tile_row + row < launch.target_height; row += kBlockY) {
    L *to = launch.mask + (launch.first_row + launch.tile_row + row) * launch.target_width;
    const int32_t shift = (int32_t)((uintptr_t)to / sizeof(L) % kRun);  // pixels after an address that a store may begin at
    const int32_t from = kLead + thread.x * kRun - shift;  // of the run in the tile
    const int32_t column = launch.tile_column + from;   // of the run in the mask
    const int32_t first = column < 0 ? -column : 0;
    const int32_t left = launch.target_width - column, last = left < kRun ? left : kRun;
    if (first >= last) continue;
    if (bilinear) {
      bilinear_run(launch, tile, below, row, from, first, last, to + column);
    } else {
      nearest_run(launch, tile, below, row, from, first, last, to + column);
    }
  }
}

// ---- entry points --------------------------------------------------------------------------------------------------

// Every kernel: name, type of the logits, type of the mask, bilinear or nearest.
#define TRTPOST_KERNELS(KERNEL)                              \
  KERNEL(trtpost_nearest_f32_u8, Float32, uint8_t, false)    \
  KERNEL(trtpost_nearest_f32_i32, Float32, int32_t, false)   \
  KERNEL(trtpost_nearest_f16_u8, Float16, uint8_t, false)    \
  KERNEL(trtpost_nearest_f16_i32, Float16, int32_t, false)   \
  KERNEL(trtpost_nearest_bf16_u8, Bfloat16, uint8_t, false)  \
  KERNEL(trtpost_nearest_bf16_i32, Bfloat16, int32_t, false) \
  KERNEL(trtpost_bilinear_f32_u8, Float32, uint8_t, true)    \
  KERNEL(trtpost_bilinear_f32_i32, Float32, int32_t, true)   \
  KERNEL(trtpost_bilinear_f16_u8, Float16, uint8_t, true)    \
  KERNEL(trtpost_bilinear_f16_i32, Float16, int32_t, true)   \
  KERNEL(trtpost_bilinear_bf16_u8, Bfloat16, uint8_t, true)  \
  KERNEL(trtpost_bilinear_bf16_i32, Bfloat16, int32_t, true)

// Arguments of every kernel. logits [N, C, h, w], or [N, h, w, C] with channels_last; mask [N, H, W]; threshold as the upper
// and lower half of its float32 bits, because the numbers that a TensorRT plugin passes are int32 and not negative.
// Grid: (ceil((W + 15) / 256), ceil(H / 32), N); block: (16, 16, 1).
#define TRTPOST_PARAMETERS(T, L)                                                                                          \
  const T::Bits *logits, const float *rows, const float *columns, int32_t channels, int32_t height, int32_t width,        \
      int32_t target_height, int32_t target_width, int32_t channels_last, int32_t head, int32_t threshold_high,         \
      int32_t threshold_low, L *mask
#define TRTPOST_ARGUMENTS                                                                                                  \
  logits, rows, columns, channels, height, width, target_height, target_width, channels_last, head, threshold_high, \
      threshold_low, mask

template <typename T, typename L>
TRTPOST_FN Launch<T, L> launch_of(int32_t block_x, int32_t block_y, int32_t block_z, const typename T::Bits *logits,
                                  const float *rows, const float *columns, int32_t channels, int32_t height,
                                  int32_t width, int32_t target_height, int32_t target_width, int32_t channels_last,
                                  int32_t head, int32_t threshold_high, int32_t threshold_low, L *mask) {
  Launch<T, L> launch;
  launch.logits = logits + (int64_t)block_z * channels * height * width;
  launch.rows = rows, launch.columns = columns;
  launch.channels = channels, launch.height = height, launch.width = width;
  launch.target_height = target_height, launch.target_width = target_width;
  launch.channel_step = channels_last ? 1 : height * width;
  launch.row_step = channels_last ? width * channels : width;
  launch.column_step = channels_last ? channels : 1;
  launch.head = (Head)head;
  launch.threshold = trtpost_from_bits((uint32_t)threshold_high << 16 | (uint32_t)threshold_low);
  launch.mask = mask;
  launch.first_row = (int64_t)block_z * target_height;
  launch.tile_row = block_y * kTileHeight;
  launch.tile_column = block_x * kTileWidth - kLead;
  return launch;
}
