// Masks as a zlib stream (RFC 1950, 1951) of PNG rows with the filter Up: what is stored is the difference from the row
// above, in a mask nearly all zeros. So runs are the only matches that are looked for, which takes a comparison where a
// general compressor takes a search; and a row like the one above takes no more than that comparison.

#include <string.h>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "picture.h"

namespace trtpost {
namespace {

constexpr int kLongest = 258, kShortest = 3;
constexpr int kEnd = 256, kSymbols = 286, kDistances = 30;
constexpr size_t kBlock = 1 << 16;  // tokens that share one set of codes

// A literal is its byte; a run of the byte before it is kRun and its length.
using Token = uint16_t;
constexpr Token kRun = 1 << 15;
constexpr uint8_t kUp = 2;  // the filter

// ---- bits ----------------------------------------------------------------------------------------------------------

class Bits {
 public:
  void put(uint32_t value, int count) {
    held_ |= (uint64_t)value << filled_;
    for (filled_ += count; filled_ >= 8; filled_ -= 8, held_ >>= 8) bytes.push_back((uint8_t)held_);
  }
  void align() {
    if (filled_) put(0, 8 - filled_);
  }

  std::vector<uint8_t> bytes;

 private:
  uint64_t held_ = 0;
  int filled_ = 0;
};

// ---- Huffman codes -------------------------------------------------------------------------------------------------

template <int N>
struct Code {
  std::array<uint32_t, N> count{};
  std::array<uint8_t, N> length{};
  std::array<uint16_t, N> bits{};

  // From `count` to codes of at most `limit` bits. Too long ones are cured by making the counts more alike.
  void build(int limit) {
    if (std::count_if(count.begin(), count.end(), [](uint32_t n) { return n > 0; }) < 2) {
      // a code of one symbol still takes a bit; where there is none, decoders want one nevertheless
      const auto used = std::max_element(count.begin(), count.end());
      length[used - count.begin()] = 1;
    } else {
      while (measure() > limit)
        for (uint32_t &n : count) n = (n + 1) / 2;
    }
    uint32_t next = 0;
    for (int size = 1; size <= limit; ++size, next <<= 1)
      for (int symbol = 0; symbol < N; ++symbol)
        if (length[symbol] == size) bits[symbol] = reversed(next++, size);
  }

  void put(Bits &out, int symbol) const { out.put(bits[symbol], length[symbol]); }

 private:
  // Depth of each used symbol in the Huffman tree; returns the largest.
  int measure() {
    using Node = std::pair<uint64_t, int>;
    std::priority_queue<Node, std::vector<Node>, std::greater<Node>> open;
    std::array<int, 2 * N> parent{};
    for (int symbol = 0; symbol < N; ++symbol)
      if (count[symbol]) open.push({count[symbol], symbol});
    int next = N;
    while (open.size() > 1) {
      const Node first = open.top();
      open.pop();
      const Node second = open.top();
      open.pop();
      parent[first.second] = parent[second.second] = next;
      open.push({first.first + second.first, next++});
    }
    int deepest = 0;
    for (int symbol = 0; symbol < N; ++symbol) {
      int depth = 0;
      if (count[symbol])
        for (int node = symbol; node != next - 1; node = parent[node]) ++depth;
      length[symbol] = (uint8_t)std::min(depth, 255);
      deepest = std::max(deepest, depth);
    }
    return deepest;
  }

  static uint16_t reversed(uint32_t value, int size) {
    uint32_t result = 0;
    for (int bit = 0; bit < size; ++bit) result |= (value >> bit & 1) << (size - 1 - bit);
    return (uint16_t)result;
  }
};

// The symbol of a length, and the bits that follow it.
struct Length {
  int symbol, extra;
  uint32_t rest;
};

Length length_symbol(int length) {
  if (length == kLongest) return {285, 0, 0};
  const int value = length - kShortest;
  if (value < 8) return {257 + value, 0, 0};
  const int extra = 29 - __builtin_clz(value);
  return {257 + 4 * extra + (value >> extra), extra, value & ((1u << extra) - 1)};
}

// ---- blocks --------------------------------------------------------------------------------------------------------

class Deflate {
 public:
  Deflate() {
    tokens_.reserve(kBlock);
    out_.put(0x78, 8);  // a zlib stream, window of 32 KiB
    out_.put(0x01, 8);  // by a fast compressor
  }

  void literal(uint8_t value) { add(value); }

  // So many bytes like the last one, which has the given value.
  void run(uint8_t value, size_t length) {
    for (; length && length < kShortest; --length) add(value);
    while (length) {
      // what is left must be no shorter than a match
      const size_t part = length <= kLongest ? length : std::min<size_t>(kLongest, length - kShortest);
      add((Token)(kRun | part));
      length -= part;
    }
  }

  std::vector<uint8_t> finish(uint32_t checksum) {
    block(true);
    out_.align();
    for (int shift = 24; shift >= 0; shift -= 8) out_.put(checksum >> shift & 255, 8);
    return std::move(out_.bytes);
  }

 private:
  void add(Token token) {
    if (tokens_.size() == kBlock) block(false);
    tokens_.push_back(token);
  }

  void block(bool last) {
    Code<kSymbols> symbols;
    Code<kDistances> distances;  // 1, the first of them, is the only one
    symbols.count[kEnd] = 1;
    for (const Token token : tokens_) {
      if (token & kRun) {
        ++symbols.count[length_symbol(token & ~kRun).symbol];
      } else {
        ++symbols.count[token];
      }
    }
    symbols.build(15);
    distances.build(15);
    out_.put(last, 1);
    out_.put(2, 2);
    codes(symbols, distances);
    for (const Token token : tokens_) {
      if (!(token & kRun)) {
        symbols.put(out_, token);
        continue;
      }
      const Length length = length_symbol(token & ~kRun);
      symbols.put(out_, length.symbol);
      out_.put(length.rest, length.extra);
      distances.put(out_, 0);
    }
    symbols.put(out_, kEnd);
    tokens_.clear();
  }

  // The lengths of both codes, runs of zeros shortened, in a code of their own.
  void codes(const Code<kSymbols> &symbols, const Code<kDistances> &distances) {
    static constexpr int kOrder[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    std::vector<uint8_t> lengths(symbols.length.begin(), symbols.length.end());
    lengths.insert(lengths.end(), distances.length.begin(), distances.length.end());
    std::vector<std::pair<int, int>> items;  // symbol, and how many zeros it stands for
    for (size_t at = 0; at < lengths.size();) {
      size_t zeros = 0;
      while (at + zeros < lengths.size() && zeros < 138 && lengths[at + zeros] == 0) ++zeros;
      if (zeros >= 3) {
        items.push_back({zeros > 10 ? 18 : 17, (int)zeros});
        at += zeros;
      } else {
        items.push_back({lengths[at++], 1});
      }
    }
    Code<19> outer;
    for (const auto &item : items) ++outer.count[item.first];
    outer.build(7);
    out_.put(kSymbols - 257, 5);
    out_.put(kDistances - 1, 5);
    out_.put(19 - 4, 4);
    for (const int symbol : kOrder) out_.put(outer.length[symbol], 3);
    for (const auto &item : items) {
      outer.put(out_, item.first);
      if (item.first == 17) out_.put(item.second - 3, 3);
      if (item.first == 18) out_.put(item.second - 11, 7);
    }
  }

  Bits out_;
  std::vector<Token> tokens_;
};

// ---- rows ----------------------------------------------------------------------------------------------------------

// How many bytes from the start are the same.
size_t same(const uint8_t *one, const uint8_t *other, size_t count) {
  size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    uint64_t a, b;
    memcpy(&a, one + at, 8);
    memcpy(&b, other + at, 8);
    if (a != b) break;
  }
  while (at < count && one[at] == other[at]) ++at;
  return at;
}

// Adler-32 of bytes that come in pieces.
class Checksum {
 public:
  void add(const uint8_t *bytes, size_t count) {
    constexpr size_t kPart = 32;
    uint64_t sum = 0, weighted = 0;
    size_t at = 0;
    for (; at + kPart <= count; at += kPart) {
      uint32_t part = 0, inside = 0;
      for (size_t k = 0; k < kPart; ++k) {
        part += bytes[at + k];
        inside += (uint32_t)(kPart - k) * bytes[at + k];
      }
      weighted += sum * kPart + inside;
      sum += part;
    }
    for (; at < count; ++at) weighted += sum += bytes[at];
    high_ = (high_ + count * low_ + weighted) % kPrime;
    low_ = (low_ + sum) % kPrime;
  }

  // A byte, and zeros after it.
  void add_sparse(uint8_t first, size_t count) {
    high_ = (high_ + count * (low_ + first)) % kPrime;
    low_ = (low_ + first) % kPrime;
  }

  uint32_t value() const { return (uint32_t)(high_ << 16 | low_); }

 private:
  static constexpr uint64_t kPrime = 65521;
  uint64_t low_ = 1, high_ = 0;
};

template <int kBits>
void pack_row(const uint8_t *row, size_t width, uint8_t *out) {
  constexpr size_t kPixels = 8 / kBits;
  for (; width >= kPixels; width -= kPixels, row += kPixels) {
    uint8_t byte = 0;
    for (size_t k = 0; k < kPixels; ++k) byte = (uint8_t)(byte << kBits | row[k]);
    *out++ = byte;
  }
  if (width == 0) return;
  uint8_t byte = 0;
  for (size_t k = 0; k < width; ++k) byte = (uint8_t)(byte << kBits | row[k]);
  *out = (uint8_t)(byte << kBits * (kPixels - width));
}

// Rows of whole bytes whose pixels have 1, 2 or 4 bits, the first of each byte in its upper ones.
std::vector<uint8_t> packed(const uint8_t *mask, size_t height, size_t width, int bits, size_t bytes) {
  const auto pack = bits == 1 ? pack_row<1> : bits == 2 ? pack_row<2> : pack_row<4>;
  std::vector<uint8_t> rows(height * bytes);
  for (size_t y = 0; y < height; ++y) {
    const uint8_t *row = mask + y * width;
    uint8_t *to = &rows[y * bytes];
    if (y && same(row, row - width, width) == width) {
      memcpy(to, to - bytes, bytes);
    } else {
      pack(row, width, to);
    }
  }
  return rows;
}

}  // namespace

std::vector<uint8_t> deflate_mask(const uint8_t *mask, size_t height, size_t width, int bits) {
  if (bits < 8) {
    const size_t bytes = (width * bits + 7) / 8;
    return deflate_mask(packed(mask, height, width, bits, bytes).data(), height, bytes, 8);
  }
  Deflate out;
  Checksum checksum;
  std::vector<uint8_t> difference(width + 1, 0);  // of a row, after its filter
  difference[0] = kUp;
  for (size_t y = 0; y < height; ++y) {
    const uint8_t *row = mask + y * width, *above = y ? row - width : nullptr;
    out.literal(kUp);
    if (above && same(row, above, width) == width) {
      checksum.add_sparse(kUp, width + 1);
      out.literal(0);
      out.run(0, width - 1);
      continue;
    }
    for (size_t x = 0; x < width; ++x) difference[x + 1] = (uint8_t)(row[x] - (above ? above[x] : 0));
    checksum.add(difference.data(), width + 1);
    for (size_t at = 1; at <= width;) {
      const uint8_t before = difference[at - 1];
      const size_t run = same(&difference[at], &difference[at - 1], width + 1 - at);
      out.run(before, run);
      at += run;
      if (at <= width) out.literal(difference[at++]);
    }
  }
  return out.finish(checksum.value());
}

}  // namespace trtpost
