// The Python module trtpost._cpu: fills in a Job, picks the kernel for this processor, and runs its chunks on threads.
//
// Shapes, types and values are checked by trtpost/kernels/cpu.py, which alone calls this; what picture.h declares has callers
// of its own.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../common/index.h"
#include "job.h"
#include "picture.h"

namespace nb = nanobind;

namespace trtpost {

namespace generic { void run_chunk(const Job &, const Scratch &, char *, int); }
#ifdef TRTPOST_X86
namespace avx2 { void run_chunk(const Job &, const Scratch &, char *, int); }
namespace avx512 { void run_chunk(const Job &, const Scratch &, char *, int); }
#endif

namespace {

struct Isa {
  const char *name;
  Kernel kernel;
};

// The instruction sets that this processor has, the best first.
std::vector<Isa> isas() {
  std::vector<Isa> found;
#ifdef TRTPOST_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    found.push_back({"avx512", avx512::run_chunk});
  if (__builtin_cpu_supports("avx2")) found.push_back({"avx2", avx2::run_chunk});
#endif
  found.push_back({"generic", generic::run_chunk});
  return found;
}

// ---- tables --------------------------------------------------------------------------------------------------------

struct Axis {
  std::vector<int32_t> index, start;  // source of each output; first output of each source
  std::vector<float> weights;
};

Axis axis_of(int source, int target, int match, bool bilinear) {
  Axis axis;
  axis.index.resize(target + kPad);
  axis.weights.assign(bilinear ? target + kPad : 0, 0.0f);
  if (bilinear) {
    for (int j = 0; j < target; ++j) axis.index[j] = trtpost_linear(j, source, target, match, &axis.weights[j]);
  } else if (match == TRTPOST_MATCH_PIL) {
    trtpost_pil_table(axis.index.data(), source, target);
  } else {
    for (int j = 0; j < target; ++j) axis.index[j] = trtpost_nearest(j, source, target, match);
  }
  axis.start.resize(source + 1 + kPad, target);
  int j = 0;
  for (int y = 0; y <= source; ++y) {
    while (j < target && axis.index[j] < y) ++j;
    axis.start[y] = j;
  }
  return axis;
}

// For `stretch`: where sixteen outputs begin in the source, and which byte behind it each one is. Empty where sixteen
// outputs reach over more than sixteen source pixels.
struct Shuffles {
  std::vector<uint8_t> order;
  std::vector<int32_t> bases;
};

Shuffles shuffles_of(const Axis &axis, int target) {
  Shuffles result;
  result.order.resize(target + kPad);
  result.bases.resize(target / 16 + 1);
  for (int j = 0; j + 16 <= target; j += 16) {
    const int base = axis.index[j];
    if (axis.index[j + 15] - base > 15) return {};
    result.bases[j / 16] = base;
    for (int k = 0; k < 16; ++k) result.order[j + k] = (uint8_t)(axis.index[j + k] - base);
  }
  return result;
}

Scratch scratch_of(const Job &job, bool converted) {
  Scratch at{};
  at.pitch = std::max(job.width, job.target_width) + kPad;
  at.plane_pitch = (job.width + kPad) / kPad * kPad + 16;  // no power of two: see source_row
  size_t total = 0;
  auto take = [&total](size_t bytes) {
    const size_t here = total;
    total += (bytes + 63) / 64 * 64;
    return here;
  };
  const size_t channels = job.channels, row = at.pitch;
  for (size_t &plane : at.planes) plane = take(converted ? channels * at.plane_pitch * 4 : 0);
  for (size_t &label : at.labels) label = take(row * (job.wide ? 4 : 1));
  at.margins = take(row);
  at.best = take(row * 4);
  at.second = take(row * 4);
  at.index = take(row * 4);
  at.lerp = take(row * 4);
  for (size_t &tail : at.tail) tail = take(channels * 16 * 4);
  at.differs = take(row);
  at.candidates = take(channels * 8 * 4);
  at.edges = take(channels * 6 * 4);
  at.total = total + 64;
  return at;
}

// ---- threads -------------------------------------------------------------------------------------------------------

// Who is at work, and whether there is still work to come to.
struct Gate {
  std::mutex lock;
  std::condition_variable left;
  int inside = 0;
  bool closed = false;
};

// Calls work() on so many threads at once, the calling one among them. It is handed out by a shared counter, so where the
// system gives no more threads, fewer do it; and one that begins when all is done, because another library's threads
// were spinning on its core, is not waited for.
template <typename Work>
void on_threads(int workers, const Work &work) {
  const auto gate = std::make_shared<Gate>();
  const auto helper = [gate, &work] {
    {
      const std::lock_guard<std::mutex> hold(gate->lock);
      if (gate->closed) return;  // `work` may be gone
      ++gate->inside;
    }
    work();
    const std::lock_guard<std::mutex> hold(gate->lock);
    --gate->inside;
    gate->left.notify_one();
  };
  for (int k = 1; k < workers; ++k) {
    try {
      std::thread(helper).detach();
    } catch (const std::system_error &) {
      break;
    }
  }
  work();
  std::unique_lock<std::mutex> hold(gate->lock);
  gate->closed = true;
  gate->left.wait(hold, [&] { return gate->inside == 0; });
}

constexpr size_t kKept = 4 << 20;

void run(const Job &job, const Scratch &at, Kernel kernel, int threads) {
  const int chunks = job.batch * job.chunks_per_image;
  const int workers = std::max(1, std::min(threads, chunks));
  // allocated here, because an exception in a thread would end the process; kept for the next call if it is not large
  thread_local std::vector<char> memory;
  if (memory.size() < at.total * workers) memory.resize(at.total * workers);
  char *const blocks = memory.data();
  std::atomic<int> next_worker{0}, next_chunk{0};
  on_threads(workers, [&] {
    char *block = blocks + at.total * next_worker.fetch_add(1);
    block += (64 - reinterpret_cast<uintptr_t>(block) % 64) % 64;
    for (int chunk; (chunk = next_chunk.fetch_add(1)) < chunks;) kernel(job, at, block, chunk);
  });
  if (memory.size() > kKept) memory = std::vector<char>();
}

// ---- Python --------------------------------------------------------------------------------------------------------

Type type_of(nb::dlpack::dtype dtype) {
  if (dtype == nb::dtype<float>()) return Type::float32;
  if (dtype == nb::dtype<uint16_t>()) return Type::float16;  // numpy has no half that nanobind knows
  if (dtype == nb::dtype<int8_t>()) return Type::int8;
  if (dtype == nb::dtype<uint8_t>()) return Type::uint8;
  if (dtype == nb::dtype<int32_t>()) return Type::int32;
  if (dtype == nb::dtype<int64_t>()) return Type::int64;
  throw std::invalid_argument("element type of the logits");
}

using Logits = nb::ndarray<nb::ro, nb::ndim<4>, nb::device::cpu>;
using Mask = nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Margin = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void argmax_resize(Logits logits, Mask mask, int head, int match, bool bilinear, float threshold, nb::object margin,
                   float margin_scale, int threads, bool full, const std::string &isa) {
  Job job{};
  job.type = type_of(logits.dtype());
  const int64_t size = logits.dtype().bits / 8;
  job.logits = static_cast<const char *>(logits.data());
  job.batch_stride = logits.stride(0) * size;
  job.channel_stride = logits.stride(1) * size;
  job.row_stride = logits.stride(2) * size;
  job.column_stride = logits.stride(3) * size;
  job.batch = (int)logits.shape(0);
  job.channels = (int)logits.shape(1);
  job.height = (int)logits.shape(2);
  job.width = (int)logits.shape(3);
  job.head = static_cast<Head>(head);
  job.threshold = threshold;
  job.bilinear = bilinear;
  job.target_height = (int)mask.shape(1);
  job.target_width = (int)mask.shape(2);
  job.mask = mask.data();
  job.wide = mask.dtype() == nb::dtype<int32_t>();
  Margin margins;
  if (!margin.is_none()) {
    margins = nb::cast<Margin>(margin);
    job.margin = margins.data();
    job.margin_scale = margin_scale;
  }
  // the cell rule pays where a cell holds at least about one column; the margin is needed at every pixel
  job.cells = !full && job.margin == nullptr && job.target_width >= job.width;
  if (bilinear && !full && job.margin == nullptr && job.target_height == job.height && job.target_width == job.width) {
    // the same size: every weight is 0, so nothing is interpolated
    job.bilinear = bilinear = false;
    match = TRTPOST_MATCH_TF1;
  }

  const std::vector<Isa> known = isas();
  const auto chosen = isa.empty() ? known.begin() : std::find_if(known.begin(), known.end(), [&](const Isa &one) {
    return isa == one.name;
  });
  if (chosen == known.end()) throw std::invalid_argument("this processor does not have " + isa);

  nb::gil_scoped_release release;
  threads = std::min(std::max(1, threads), 1024);
  const Axis rows = axis_of(job.height, job.target_height, match, bilinear);
  const Axis columns = axis_of(job.width, job.target_width, match, bilinear);
  const Shuffles shuffles = shuffles_of(columns, job.target_width);
  job.columns = columns.index.data();
  job.row_weights = rows.weights.data(), job.column_weights = columns.weights.data();
  job.row_start = rows.start.data(), job.column_start = columns.start.data();
  job.shuffles = shuffles.order.empty() ? nullptr : shuffles.order.data();
  job.shuffle_bases = shuffles.bases.data();
  // small, so that no thread waits long for the last one; but in bilinear each chunk repeats a row of the next
  job.rows_per_chunk = bilinear ? std::max(8, job.height / (threads * 12)) : std::max(2, job.height / (threads * 32));
  job.chunks_per_image = (job.height + job.rows_per_chunk - 1) / job.rows_per_chunk;
  job.in_place = job.type == Type::float32 && job.column_stride == 4 && job.channel_stride % 4 == 0 &&
                 job.row_stride % 4 == 0 && job.batch_stride % 4 == 0 && reinterpret_cast<uintptr_t>(job.logits) % 4 == 0;
  job.copy_rows = job.channels > 4 && job.channel_stride % 4096 == 0;
  run(job, scratch_of(job, !job.in_place || job.copy_rows), chosen->kernel, threads);
}

// What no kernel can be faster than: every byte of `source` read once, every byte of `target` written once.
float floor_pass(nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> source,
                 nb::ndarray<nb::c_contig, nb::device::cpu> target, int threads) {
  const char *from = static_cast<const char *>(source.data());
  char *to = static_cast<char *>(target.data());
  const size_t read = source.nbytes() / 64 * 64, written = target.nbytes();
  nb::gil_scoped_release release;
  constexpr int kParts = 64;
  std::atomic<int> next{0};
  std::atomic<uint32_t> sum{0};
  on_threads(std::max(1, threads), [&] {
    typedef uint32_t Words __attribute__((vector_size(64)));
    Words total{};
    for (int part; (part = next.fetch_add(1)) < kParts;) {
      for (size_t at = read / 64 * part / kParts * 64; at < read / 64 * (part + 1) / kParts * 64; at += 64) {
        Words words;
        __builtin_memcpy(&words, from + at, 64);
        total += words;
      }
      const size_t begin = written * part / kParts, end = written * (part + 1) / kParts;
      std::fill(to + begin, to + end, (char)part);
    }
    uint32_t one = 0;
    for (int k = 0; k < 16; ++k) one += total[k];
    sum += one;
  });
  return (float)sum;
}

using Photo = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Index = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void shrink(Photo photo, Index top, Index bottom, Weights down, Index left, Index right, Weights across, Pixels out) {
  const Neighbours rows{top.data(), bottom.data(), down.data(), (int)top.size()};
  const Neighbours columns{left.data(), right.data(), across.data(), (int)left.size()};
  const size_t width = photo.shape(1);
  const int channels = (int)photo.shape(2);
  nb::gil_scoped_release release;
  bilinear_pixels(photo.data(), width, channels, rows, columns, out.data());
}

nb::bytes deflate(Labels mask, int bits) {
  std::vector<uint8_t> stream;
  {
    nb::gil_scoped_release release;
    stream = deflate_mask(mask.data(), mask.shape(0), mask.shape(1), bits);
  }
  return nb::bytes(stream.data(), stream.size());
}

}  // namespace
}  // namespace trtpost

NB_MODULE(_cpu, module) {
  module.def("argmax_resize", &trtpost::argmax_resize, nb::arg("logits"), nb::arg("mask"), nb::kw_only(), nb::arg("head"),
             nb::arg("match"), nb::arg("bilinear"), nb::arg("threshold"), nb::arg("margin").none(), nb::arg("margin_scale"),
             nb::arg("threads"), nb::arg("full"), nb::arg("isa"));
  module.def("floor_pass", &trtpost::floor_pass, nb::arg("source"), nb::arg("target"), nb::arg("threads"));
  module.def("bilinear_pixels", &trtpost::shrink, nb::arg("photo"), nb::arg("top"), nb::arg("bottom"), nb::arg("down"),
             nb::arg("left"), nb::arg("right"), nb::arg("across"), nb::arg("out"));
  module.def("deflate_mask", &trtpost::deflate, nb::arg("mask"), nb::arg("bits"));
  module.def("isas", [] {
    nb::list names;
    for (const auto &isa : trtpost::isas()) names.append(isa.name);
    return names;
  });
}
