// The fused ArgMax and Resize on the CPU.
//
// This file is compiled once for each instruction set (TRTPOST_ISA names the namespace); dispatch.cpp picks one when it
// runs. Therefore nothing here may be an inline function with external linkage, standard library templates included:
// the linker would keep one copy for all, built for a processor that may not be there.
//
// Work is cut into chunks of source rows. A thread takes a chunk, computes the ArgMax of each source row, and writes the
// output rows that lie on it while everything is still in the cache. No tensor of logits at output size is ever built.

#include "../common/cell.h"
#include "../common/half.h"
#include "job.h"

#ifndef TRTPOST_ISA
#define TRTPOST_ISA generic
#endif

namespace trtpost {
namespace TRTPOST_ISA {
namespace {

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef int32_t Ints __attribute__((vector_size(kLanes * 4)));
// cells are looked at eight at a time, whatever the vector width
typedef float Eight __attribute__((vector_size(32)));
typedef int32_t EightInts __attribute__((vector_size(32)));
typedef uint32_t EightWords __attribute__((vector_size(32)));

template <typename V>
inline __attribute__((always_inline)) V load(const void *from) {
  V value;
  memcpy(&value, from, sizeof value);
  return value;
}

template <typename V>
inline __attribute__((always_inline)) void store(void *to, V value) {
  memcpy(to, &value, sizeof value);
}

constexpr float kNothing = -__builtin_inff();

inline __attribute__((always_inline)) Eight limited(Eight value) {
  const Eight limit = Eight{} + TRTPOST_LIMIT;
  value = value > -limit ? value : -limit;
  return value < limit ? value : limit;
}

// ---- source rows ---------------------------------------------------------------------------------------------------

// One source row: class c at column x is data[c * stride + x].
struct Row {
  const float *data;
  int64_t stride;
};

template <typename T>
inline float to_float(T value) { return (float)value; }
template <>
inline float to_float<uint16_t>(uint16_t value) { return trtpost_from_half(value); }

template <typename T>
inline T element(const char *at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

// Planes of float from any type and strides; a block of columns at a time, so that interleaved classes stay in cache.
template <typename T>
void convert_row(const Job &job, const char *from, float *planes, int pitch) {
  constexpr int kBlock = 32;
  for (int x = 0; x < job.width; x += kBlock) {
    const int count = job.width - x < kBlock ? job.width - x : kBlock;
    const char *block = from + x * job.column_stride;
    for (int c = 0; c < job.channels; ++c) {
      const char *at = block + c * job.channel_stride;
      float *to = planes + (int64_t)c * pitch + x;
      if (job.column_stride == (int64_t)sizeof(T)) {
        for (int k = 0; k < count; ++k) to[k] = to_float(element<T>(at + k * sizeof(T)));
      } else {
        for (int k = 0; k < count; ++k) to[k] = to_float(element<T>(at + k * job.column_stride));
      }
    }
  }
}

// `in_place` where the planes may be read where they are. Planes that lie a multiple of a page apart all fall into the
// same few cache sets and evict each other, so rows that are read more than once are copied side by side first.
Row source_row(const Job &job, int image, int y, float *planes, int pitch, bool in_place) {
  const char *from = job.logits + image * job.batch_stride + y * job.row_stride;
  if (in_place && job.in_place) return {(const float *)from, job.channel_stride / 4};
  if (job.in_place) {
    for (int c = 0; c < job.channels; ++c)
      memcpy(planes + (int64_t)c * pitch, from + c * job.channel_stride, job.width * sizeof(float));
    return {planes, pitch};
  }
  switch (job.type) {
    case Type::float32: convert_row<float>(job, from, planes, pitch); break;
    case Type::float16: convert_row<uint16_t>(job, from, planes, pitch); break;
    case Type::int8: convert_row<int8_t>(job, from, planes, pitch); break;
    case Type::uint8: convert_row<uint8_t>(job, from, planes, pitch); break;
    default: break;  // int32 and int64 are labels, never logits
  }
  return {planes, pitch};
}

// ---- ArgMax of a source row ----------------------------------------------------------------------------------------

template <typename L>
void put_labels(L *labels, const int32_t *index, int count) {
  for (int x = 0; x < count; ++x) labels[x] = (L)index[x];
}

// Best and, where asked for, second-best value of each column; ties keep the lower class, NaN never wins.
template <bool kSecond>
void best_of_row(Row row, int channels, int width, float *best, float *second, int32_t *index) {
  constexpr int kBlock = 512;  // best and index of a block stay in the first-level cache while the classes stream by
  for (int x0 = 0; x0 < width; x0 += kBlock) {
    const int count = width - x0 < kBlock ? width - x0 : kBlock, whole = count - count % kLanes;
    float *b = best + x0, *s = second + x0;
    int32_t *i = index + x0;
    for (int x = 0; x < count; ++x) {
      b[x] = row.data[x0 + x] > kNothing ? row.data[x0 + x] : kNothing;  // not NaN
      i[x] = 0;
    }
    if (kSecond) for (int x = 0; x < count; ++x) s[x] = kNothing;
    for (int c = 1; c < channels; ++c) {
      const float *plane = row.data + c * row.stride + x0;
      for (int x = 0; x < whole; x += kLanes) {
        const Floats value = load<Floats>(plane + x), top = load<Floats>(b + x);
        const Ints wins = value > top;
        if (kSecond) {
          const Floats below = load<Floats>(s + x), loser = wins ? top : value;
          store(s + x, loser > below ? loser : below);
        }
        store(b + x, wins ? value : top);
        store(i + x, wins ? Ints{} + c : load<Ints>(i + x));
      }
      for (int x = whole; x < count; ++x) {
        const bool wins = plane[x] > b[x];
        if (kSecond) {
          const float loser = wins ? b[x] : plane[x];
          s[x] = loser > s[x] ? loser : s[x];
        }
        b[x] = wins ? plane[x] : b[x];
        i[x] = wins ? c : i[x];
      }
    }
  }
}

inline uint8_t margin_of(float best, float second, float scale) {
  const float margin = (best - second) * scale + 0.5f;  // infinite where the second is missing or NaN
  return margin >= 255.0f ? 255 : margin > 0.0f ? (uint8_t)margin : 0;
}

template <typename L>
void labels_of_row(const Job &job, const Scratch &at, char *scratch, int image, int y, Row row, L *labels) {
  const int width = job.width;
  if (job.head == Head::labels) {
    const char *from = job.logits + image * job.batch_stride + y * job.row_stride;
    for (int x = 0; x < width; ++x) {
      const char *one = from + x * job.column_stride;
      switch (job.type) {
        case Type::uint8: labels[x] = (L)element<uint8_t>(one); break;
        case Type::int8: labels[x] = (L)element<int8_t>(one); break;
        case Type::int32: labels[x] = (L)element<int32_t>(one); break;
        default: labels[x] = (L)element<int64_t>(one); break;
      }
    }
  } else if (job.head == Head::threshold) {
    for (int x = 0; x < width; ++x) labels[x] = row.data[x] > job.threshold;
  } else {
    float *best = (float *)(scratch + at.best), *second = (float *)(scratch + at.second);
    int32_t *index = (int32_t *)(scratch + at.index);
    if (job.margin != nullptr) {
      best_of_row<true>(row, job.channels, width, best, second, index);
    } else {
      best_of_row<false>(row, job.channels, width, best, second, index);
    }
    put_labels(labels, index, width);
  }
  for (int x = width; x < width + kPad; ++x) labels[x] = labels[width - 1];
}

void margins_of_row(const Job &job, const Scratch &at, char *scratch, Row row, uint8_t *margins) {
  const float *best = (const float *)(scratch + at.best), *second = (const float *)(scratch + at.second);
  for (int x = 0; x < job.width; ++x) {
    if (job.head == Head::threshold) {
      const float distance = row.data[x] - job.threshold;
      margins[x] = margin_of(distance < 0 ? -distance : distance, 0.0f, job.margin_scale);
    } else {
      margins[x] = margin_of(best[x], second[x], job.margin_scale);
    }
  }
}

// ---- stretching a row of labels ------------------------------------------------------------------------------------

#if defined(__GNUC__) && !defined(__clang__) && (defined(__SSSE3__) || defined(__aarch64__))
#define TRTPOST_SHUFFLE 1
typedef uint8_t Bytes __attribute__((vector_size(16)));
#endif

template <typename L>
void stretch(const Job &job, const L *source, L *target) {
  const int width = job.target_width;
  int j = 0;
#ifdef TRTPOST_SHUFFLE
  // upscaling: sixteen outputs come from at most sixteen neighbouring bytes, so one shuffle makes them
  if (sizeof(L) == 1 && job.shuffles != nullptr) {
    for (; j + 16 <= width; j += 16) {
      const Bytes from = load<Bytes>(source + job.shuffle_bases[j / 16]), order = load<Bytes>(job.shuffles + j);
      store(target + j, __builtin_shuffle(from, order));
    }
  }
#endif
  for (; j < width; ++j) target[j] = source[job.columns[j]];
}

// ---- bilinear by the cell rule -------------------------------------------------------------------------------------

// Byte k of kSpread.bytes[bits] is 255 where bit k is set.
struct SpreadTable {
  uint8_t bytes[256][8];
  constexpr SpreadTable() : bytes() {
    for (int bits = 0; bits < 256; ++bits)
      for (int k = 0; k < 8; ++k) bytes[bits][k] = bits >> k & 1 ? 255 : 0;
  }
};
constexpr SpreadTable kSpread;

// One bit for each of eight comparisons.
inline __attribute__((always_inline)) unsigned bits_of(EightInts mask) {
#if defined(__AVX2__)
  return (unsigned)__builtin_ia32_movmskps256((Eight)mask);
#elif defined(__SSE2__)
  typedef float Four __attribute__((vector_size(16)));
  Four halves[2];
  memcpy(halves, &mask, sizeof halves);
  return (unsigned)__builtin_ia32_movmskps(halves[0]) | (unsigned)__builtin_ia32_movmskps(halves[1]) << 4;
#else
  mask &= EightInts{1, 2, 4, 8, 16, 32, 64, 128};
  unsigned bits = 0;
  for (int k = 0; k < 8; ++k) bits |= (unsigned)mask[k];
  return bits;
#endif
}

// Write `count` (1 to 8) bytes, the lowest of `value` first. Nothing is read: a load that overlaps the neighbour's store
// would have to wait until that has reached the cache.
inline void put_bytes(uint8_t *to, uint64_t value, int count) {
  if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) {
    memcpy(to, &value, count);
  } else if (count == 8) {
    store(to, value);
  } else if (count >= 4) {
    store(to, (uint32_t)value);
    store(to + count - 4, (uint32_t)(value >> (8 * (count - 4))));
  } else if (count >= 2) {
    store(to, (uint16_t)value);
    store(to + count - 2, (uint16_t)(value >> (8 * (count - 2))));
  } else {
    *to = (uint8_t)value;
  }
}

// Write `count` (at most 8) labels: `yes` where the bit is set, `no` elsewhere.
inline void put_two(uint8_t *to, unsigned bits, int count, int yes, int no) {
  const uint64_t chosen = load<uint64_t>(kSpread.bytes[bits]), ones = 0x0101010101010101ull;
  put_bytes(to, (chosen & (ones * (uint64_t)yes)) | (~chosen & (ones * (uint64_t)no)), count);
}
inline void put_two(int32_t *to, unsigned bits, int count, int yes, int no) {
  for (int k = 0; k < count; ++k) to[k] = bits >> k & 1 ? yes : no;
}

// Write `count` (at most 8) labels.
inline void put_many(uint8_t *to, EightInts index, int count) {
  typedef uint8_t EightBytes __attribute__((vector_size(8)));
  const EightBytes bytes = __builtin_convertvector(index, EightBytes);
  put_bytes(to, load<uint64_t>(&bytes), count);
}
inline void put_many(int32_t *to, EightInts index, int count) {
  for (int k = 0; k < count; ++k) to[k] = index[k];
}

struct Corners {
  float a, b, c, d;  // upper left, upper right, lower left, lower right
};

// Of class c, around the cell whose left side is column x.
inline Corners corners_of(Row upper, Row lower, int c, int x) {
  const float *u = upper.data + c * upper.stride, *l = lower.data + c * lower.stride;
  return {trtpost_limited(u[x]), trtpost_limited(u[x + 1]), trtpost_limited(l[x]), trtpost_limited(l[x + 1])};
}

// One cell with two classes left, or with a threshold: the sign of one bilinear function decides.
template <typename L>
void cell_of_two(const Job &job, Corners edge, int yes, int no, bool or_equal, int first, int last, int left, int right,
                 L *mask) {
  for (int j = first; j < last; ++j) {
    const float weight = job.row_weights[j];
    const float from = trtpost_lerp(edge.a, edge.c, weight), step = trtpost_lerp(edge.b, edge.d, weight) - from;
    L *row = mask + (int64_t)j * job.target_width;
    for (int x = left; x < right; x += 8) {
      const int count = right - x < 8 ? right - x : 8;
      const Eight value = from + load<Eight>(job.column_weights + x) * step;
      const unsigned bits = bits_of(or_equal ? value >= Eight{} : value > Eight{});
      put_two(row + x, bits, count, yes, no);
    }
  }
}

// One cell with any number of classes left; kCount of them where that is known, so that they stay in registers.
// `edges` holds four corners, then value and slope along a row, of each class.
template <int kCount, typename L>
void cell_of_many(const Job &job, Row upper, Row lower, int x0, const int32_t *classes, int any_count, float *edges,
                  int first, int last, int left, int right, L *mask) {
  const int count = kCount ? kCount : any_count;
  float own[kCount ? 6 * kCount : 1];
  if (kCount) edges = own;
  float *a = edges, *b = a + count, *c = b + count, *d = c + count, *from = d + count, *step = from + count;
  for (int k = 0; k < count; ++k) {
    const Corners edge = corners_of(upper, lower, classes[k], x0);
    a[k] = edge.a, b[k] = edge.b, c[k] = edge.c, d[k] = edge.d;
  }
  for (int j = first; j < last; ++j) {
    const float weight = job.row_weights[j];
    for (int k = 0; k < count; ++k) {
      from[k] = trtpost_lerp(a[k], c[k], weight);
      step[k] = trtpost_lerp(b[k], d[k], weight) - from[k];
    }
    L *row = mask + (int64_t)j * job.target_width;
    for (int x = left; x < right; x += 8) {
      const Eight across = load<Eight>(job.column_weights + x);
      Eight best = from[0] + across * step[0];
      EightInts index = EightInts{} + classes[0];
      for (int k = 1; k < count; ++k) {
        const Eight value = from[k] + across * step[k];
        const EightInts wins = value > best;
        best = wins ? value : best;
        index = wins ? EightInts{} + classes[k] : index;
      }
      put_many(row + x, index, right - x < 8 ? right - x : 8);
    }
  }
}

// For each of eight neighbouring cells a value that some class does not fall below anywhere in the cell: the largest of
// the smallest corners of those classes that are the ArgMax somewhere in the block. A class whose corners all lie below it
// cannot win.
template <typename L>
inline Eight floors_of(Row upper, Row lower, const L *upper_labels, const L *lower_labels, int x0, unsigned open) {
  L known[18];  // nine columns, two rows
  int count = 0;
  Eight floors = Eight{} - TRTPOST_LIMIT;
  for (; open; open &= open - 1) {
    const int k = __builtin_ctz(open);
    const L labels[4] = {upper_labels[k], upper_labels[k + 1], lower_labels[k], lower_labels[k + 1]};
    for (const L label : labels) {
      bool found = false;
      for (int i = 0; i < count; ++i) found |= known[i] == label;
      if (found) continue;
      known[count++] = label;
      const float *u = upper.data + label * upper.stride + x0, *l = lower.data + label * lower.stride + x0;
      const Eight a = load<Eight>(u), b = load<Eight>(u + 1), c = load<Eight>(l), d = load<Eight>(l + 1);
      // a NaN in any corner makes the sum NaN, and the class then promises nothing
      const Eight ab = a < b ? a : b, cd = c < d ? c : d, low = ab < cd ? ab : cd, sum = (a + b) + (c + d);
      floors = (sum == sum) & (low > floors) ? low : floors;
    }
  }
  return floors;
}

// Which classes can win in each of eight neighbouring cells with the given floors: list and count for each cell whose
// bit is in `open`, in ascending order. A comparison with NaN is false, so NaN does not win.
void candidates_of(Row upper, Row lower, int channels, int x0, Eight floors, unsigned open, int32_t *lists, int *counts) {
  for (int k = 0; k < 8; ++k) counts[k] = 0;
  for (int base = 0; base < channels; base += 32) {
    // one bit a class, gathered without a branch, because no branch predictor knows which class comes near the floor
    EightWords winners{}, bit = EightWords{} + 1;
    const int stop = channels - base < 32 ? channels : base + 32;
    for (int c = base; c < stop; ++c) {
      const float *u = upper.data + c * upper.stride + x0, *l = lower.data + c * lower.stride + x0;
      const EightInts reaches = (load<Eight>(u) >= floors) | (load<Eight>(u + 1) >= floors) |
                                (load<Eight>(l) >= floors) | (load<Eight>(l + 1) >= floors);
      winners |= (EightWords)reaches & bit;
      bit += bit;
    }
    uint32_t bits[8];
    memcpy(bits, &winners, sizeof bits);
    for (unsigned left = open; left; left &= left - 1) {
      const int k = __builtin_ctz(left);
      for (uint32_t one = bits[k]; one; one &= one - 1)
        lists[k * channels + counts[k]++] = base + __builtin_ctz(one);
    }
  }
  // every value is NaN or below the limit: all are equal then, and the lowest class wins
  for (int k = 0; k < 8; ++k)
    if (counts[k] == 0) lists[k * channels] = 0, counts[k] = 1;
}

// The output rows between two source rows, which are equal where y is the last.
template <typename L>
void band(const Job &job, const Scratch &at, char *scratch, Row upper, Row lower, const L *upper_labels,
          const L *lower_labels, int first, int last, L *mask) {
  const int width = job.width;
  L *row = mask + (int64_t)first * job.target_width;
  stretch(job, upper_labels, row);
  for (int j = first + 1; j < last; ++j) memcpy(mask + (int64_t)j * job.target_width, row, job.target_width * sizeof(L));

  uint8_t *differs = (uint8_t *)(scratch + at.differs);
  for (int x = 0; x < width; ++x) {  // labels are padded with the last one, so the last cell sees itself
    const L one = upper_labels[x];
    differs[x] = (one != upper_labels[x + 1]) | (one != lower_labels[x]) | (one != lower_labels[x + 1]);
  }
  memset(differs + width, 0, 8);

  float *edges = (float *)(scratch + at.edges);
  int32_t *lists = (int32_t *)(scratch + at.candidates);
  int counts[8];
  for (int x0 = 0; x0 < width; x0 += 8) {
    if (load<uint64_t>(differs + x0) == 0) continue;
    unsigned open = 0;
    for (int k = 0; k < 8; ++k) open |= (unsigned)differs[x0 + k] << k;
    Row u = upper, l = lower;
    int shift = 0;  // where the block begins in u and l
    if (x0 + 9 > width) {
      float *tails[2] = {(float *)(scratch + at.tail[0]), (float *)(scratch + at.tail[1])};
      for (int c = 0; c < job.channels; ++c) {
        for (int k = 0; k < 16; ++k) {
          const int x = x0 + k < width ? x0 + k : width - 1;
          tails[0][16 * c + k] = upper.data[c * upper.stride + x];
          tails[1][16 * c + k] = lower.data[c * lower.stride + x];
        }
      }
      u = {tails[0], 16}, l = {tails[1], 16}, shift = x0;
    }
    const bool two = job.head == Head::threshold || job.channels == 2;
    if (!two) {
      const Eight floors = floors_of(u, l, upper_labels + x0, lower_labels + x0, x0 - shift, open);
      candidates_of(u, l, job.channels, x0 - shift, floors, open, lists, counts);
    }
    while (open) {
      const int k = __builtin_ctz(open), x = x0 + k;
      open &= open - 1;
      const int left = job.column_start[x], right = job.column_start[x + 1];
      if (left == right) continue;
      if (job.head == Head::threshold) {
        Corners edge = corners_of(u, l, 0, x - shift);
        edge.a -= job.threshold, edge.b -= job.threshold, edge.c -= job.threshold, edge.d -= job.threshold;
        cell_of_two(job, edge, 1, 0, false, first, last, left, right, mask);
        continue;
      }
      const int32_t pair[2] = {0, 1}, *classes = two ? pair : lists + k * job.channels;
      const int count = two ? 2 : counts[k];
      if (count == 2) {
        const Corners one = corners_of(u, l, classes[0], x - shift);
        const Corners other = corners_of(u, l, classes[1], x - shift);
        const Corners edge = {one.a - other.a, one.b - other.b, one.c - other.c, one.d - other.d};
        cell_of_two(job, edge, classes[0], classes[1], true, first, last, left, right, mask);
      } else {
        const auto evaluate = count == 3 ? cell_of_many<3, L> : count == 4 ? cell_of_many<4, L> : cell_of_many<0, L>;
        evaluate(job, u, l, x - shift, classes, count, edges, first, last, left, right, mask);
      }
    }
  }
}

// ---- bilinear, every class at every pixel --------------------------------------------------------------------------

template <bool kSecond, typename L>
void full_row(const Job &job, const Scratch &at, char *scratch, Row upper, Row lower, int j, L *mask, uint8_t *margin) {
  const int width = job.width, target = job.target_width;
  float *lerp = (float *)(scratch + at.lerp), *best = (float *)(scratch + at.best), *second = (float *)(scratch + at.second);
  int32_t *index = (int32_t *)(scratch + at.index);
  const float down = job.row_weights[j];
  for (int x = 0; x < target; ++x) best[x] = kNothing, second[x] = kNothing, index[x] = 0;
  for (int c = 0; c < job.channels; ++c) {
    const float *u = upper.data + c * upper.stride, *l = lower.data + c * lower.stride;
    for (int x = 0; x < width; ++x) lerp[x] = trtpost_lerp(trtpost_limited(u[x]), trtpost_limited(l[x]), down);
    lerp[width] = lerp[width - 1];
    for (int x = 0; x < target; ++x) {
      const int from = job.columns[x];
      const float value = trtpost_lerp(lerp[from], lerp[from + 1], job.column_weights[x]);
      const bool wins = value > best[x];
      if (kSecond) {
        const float loser = wins ? best[x] : value;
        second[x] = loser > second[x] ? loser : second[x];
      }
      best[x] = wins ? value : best[x];
      index[x] = wins ? c : index[x];
    }
  }
  L *row = mask + (int64_t)j * target;
  if (job.head == Head::threshold) {
    for (int x = 0; x < target; ++x) row[x] = best[x] > job.threshold;
  } else {
    put_labels(row, index, target);
  }
  if (!kSecond) return;
  uint8_t *margins = margin + (int64_t)j * target;
  for (int x = 0; x < target; ++x) {
    const float distance = best[x] - job.threshold;
    margins[x] = job.head == Head::threshold ? margin_of(distance < 0 ? -distance : distance, 0.0f, job.margin_scale)
                                             : margin_of(best[x], second[x], job.margin_scale);
  }
}

// ---- a chunk of source rows ----------------------------------------------------------------------------------------

template <typename L>
void nearest_chunk(const Job &job, const Scratch &at, char *scratch, int image, int begin, int end, L *mask,
                   uint8_t *margin) {
  L *labels = (L *)(scratch + at.labels[0]);
  uint8_t *margins = (uint8_t *)(scratch + at.margins);
  for (int y = begin; y < end; ++y) {
    const int first = job.row_start[y], last = job.row_start[y + 1];
    if (first == last) continue;  // downscaling skips rows
    Row row = {nullptr, 0};
    if (job.head != Head::labels) row = source_row(job, image, y, (float *)(scratch + at.planes[0]), at.plane_pitch, true);
    labels_of_row(job, at, scratch, image, y, row, labels);
    L *to = mask + (int64_t)first * job.target_width;
    stretch(job, labels, to);
    for (int j = first + 1; j < last; ++j) memcpy(mask + (int64_t)j * job.target_width, to, job.target_width * sizeof(L));
    if (margin == nullptr) continue;
    margins_of_row(job, at, scratch, row, margins);
    for (int j = first; j < last; ++j)
      for (int x = 0; x < job.target_width; ++x) margin[(int64_t)j * job.target_width + x] = margins[job.columns[x]];
  }
}

template <typename L>
void bilinear_chunk(const Job &job, const Scratch &at, char *scratch, int image, int begin, int end, L *mask,
                    uint8_t *margin) {
  Row rows[2];
  int held[2] = {-1, -1};  // source row in each slot; row y lives in slot y % 2
  for (int y = begin; y < end; ++y) {
    const int first = job.row_start[y], last = job.row_start[y + 1];
    if (first == last) continue;
    const int below = y + 1 < job.height ? y + 1 : y;
    for (int source = y; source <= below; ++source) {
      const int slot = source & 1;
      if (held[slot] == source) continue;
      rows[slot] = source_row(job, image, source, (float *)(scratch + at.planes[slot]), at.plane_pitch, !job.copy_rows);
      if (job.cells) labels_of_row(job, at, scratch, image, source, rows[slot], (L *)(scratch + at.labels[slot]));
      held[slot] = source;
    }
    const Row upper = rows[y & 1], lower = rows[below & 1];
    if (job.cells) {
      band(job, at, scratch, upper, lower, (L *)(scratch + at.labels[y & 1]), (L *)(scratch + at.labels[below & 1]), first,
           last, mask);
    } else {
      for (int j = first; j < last; ++j) {
        if (margin != nullptr) {
          full_row<true>(job, at, scratch, upper, lower, j, mask, margin);
        } else {
          full_row<false>(job, at, scratch, upper, lower, j, mask, margin);
        }
      }
    }
  }
}

template <typename L>
void chunk_of(const Job &job, const Scratch &at, char *scratch, int chunk) {
  const int image = chunk / job.chunks_per_image, begin = chunk % job.chunks_per_image * job.rows_per_chunk;
  const int end = begin + job.rows_per_chunk < job.height ? begin + job.rows_per_chunk : job.height;
  const int64_t pixels = (int64_t)image * job.target_height * job.target_width;
  L *mask = (L *)job.mask + pixels;
  uint8_t *margin = job.margin == nullptr ? nullptr : job.margin + pixels;
  if (job.bilinear) {
    bilinear_chunk(job, at, scratch, image, begin, end, mask, margin);
  } else {
    nearest_chunk(job, at, scratch, image, begin, end, mask, margin);
  }
}

}  // namespace

void run_chunk(const Job &job, const Scratch &at, char *scratch, int chunk) {
  if (job.wide) {
    chunk_of<int32_t>(job, at, scratch, chunk);
  } else {
    chunk_of<uint8_t>(job, at, scratch, chunk);
  }
}

}  // namespace TRTPOST_ISA
}  // namespace trtpost
