// The guard's kernels: they fill regions of device memory with a pattern, look
// for bytes that differ from it, sum regions up, and keep a stream busy. The
// format of the table and of the results is cuda/driver/guard.go's.
//
// A warp takes one region at a time. Red zones, a few bytes each and by the
// thousand, then keep every warp busy, and no result is put together from the
// work of two warps: results lie in host memory, where an atomic operation of
// the device cannot be relied on. The host cuts large regions into pieces.
//
// The table lies in host memory too, some microseconds away. A warp takes
// neighbouring records, asks for as many as its lanes can hold at once, and for
// the next before it works on those. What is intact leaves no result: the host
// has written that there is none. A few regions to fill need no table: they
// come as arguments, and all threads fill them.

#include <cstdint>

constexpr uint32_t lanes = 32;
constexpr uint32_t allLanes = 0xffffffff;
constexpr uint32_t recordWords = 4;
constexpr uint32_t recordsAtOnce = lanes / recordWords;
constexpr uint32_t vectorBytes = 16;
constexpr uint64_t noMismatch = ~uint64_t{0};
constexpr uint64_t longestDelay = 1000000000;

struct alignas(16) Region {
  uint64_t address, bytes, pattern, tag;
};

struct alignas(16) Result {
  uint64_t first, differing, values, unused;
};

// A region as a warp walks it: vectors where the address is aligned for them,
// and up to 15 single bytes in front of them and behind.
struct Span {
  uint8_t *start;
  uint64_t bytes, head, vectors;

  __device__ explicit Span(const Region &r)
      : start(reinterpret_cast<uint8_t *>(r.address)), bytes(r.bytes) {
    const uint64_t unaligned = -r.address % vectorBytes;
    head = unaligned < bytes ? unaligned : bytes;
    vectors = (bytes - head) / vectorBytes;
  }

  __device__ ulonglong2 *body() const { return reinterpret_cast<ulonglong2 *>(start + head); }

  // edge is the offset of the single byte that is this thread's, of those that
  // share the region: one in front for the first of them, one behind for the
  // next. It is no less than bytes if there is none.
  __device__ uint64_t edge(uint32_t thread) const {
    if (thread < vectorBytes) return thread < head ? thread : bytes;
    return head + vectors * vectorBytes + (thread - vectorBytes);
  }

  // word is the pattern as it lies in an aligned word of the body.
  __device__ uint64_t word(uint64_t pattern) const {
    const uint32_t shift = head % 8 * 8;
    return pattern >> shift | pattern << (-shift & 63);
  }
};

static __device__ uint8_t byteOf(uint64_t pattern, uint64_t at) { return pattern >> (at % 8 * 8); }

static __device__ uint32_t lane() { return threadIdx.x % lanes; }

static __device__ uint32_t thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ uint32_t threads() { return gridDim.x * blockDim.x; }

// fetch loads the records from the i-th on, one word of them in each lane.
static __device__ uint64_t fetch(const Region *table, uint32_t i, uint32_t end) {
  const uint64_t at = uint64_t{i} * recordWords + lane();
  return at < uint64_t{end} * recordWords ? reinterpret_cast<const uint64_t *>(table)[at] : 0;
}

// eachRegion calls work(i, region) for the regions of this warp, which lie side
// by side: as many for each warp, but for the rest.
template <typename Work>
static __device__ void eachRegion(const Region *table, uint32_t n, Work work) {
  const uint32_t warp = thread() / lanes, warps = threads() / lanes, share = n / warps, rest = n % warps;
  uint32_t i = warp * share + (warp < rest ? warp : rest);
  const uint32_t end = i + share + (warp < rest ? 1 : 0);
  for (uint64_t words = fetch(table, i, end); i < end;) {
    const uint64_t following = i + recordsAtOnce < end ? fetch(table, i + recordsAtOnce, end) : 0;
#pragma unroll 1
    for (uint32_t k = 0; k < lanes && i < end; k += recordWords, i++) {
      work(i, Region{__shfl_sync(allLanes, words, k), __shfl_sync(allLanes, words, k + 1), __shfl_sync(allLanes, words, k + 2), 0});
    }
    words = following;
  }
}

// fill fills what is the share of one thread, of so many that fill the region.
static __device__ void fill(const Region &r, uint32_t thread, uint32_t threads) {
  const Span s(r);
  const uint64_t at = s.edge(thread);
  if (at < s.bytes) s.start[at] = byteOf(r.pattern, at);
  const uint64_t word = s.word(r.pattern);
  for (uint64_t k = thread; k < s.vectors; k += threads) s.body()[k] = make_ulonglong2(word, word);
}

extern "C" __global__ void fencepost_fill(const Region *table, uint32_t n) {
  eachRegion(table, n, [](uint32_t, const Region &r) { fill(r, lane(), lanes); });
}

extern "C" __global__ void fencepost_fill_few(uint64_t address0, uint64_t bytes0, uint64_t pattern0,
                                              uint64_t address1, uint64_t bytes1, uint64_t pattern1,
                                              uint64_t address2, uint64_t bytes2, uint64_t pattern2,
                                              uint64_t address3, uint64_t bytes3, uint64_t pattern3) {
  fill(Region{address0, bytes0, pattern0, 0}, thread(), threads());
  fill(Region{address1, bytes1, pattern1, 0}, thread(), threads());
  fill(Region{address2, bytes2, pattern2, 0}, thread(), threads());
  fill(Region{address3, bytes3, pattern3, 0}, thread(), threads());
}

// differs reports whether any byte of the region does. It has no branches
// inside its loop, so that loads overlap, and is all that happens to a region
// that is intact.
static __device__ bool differs(const Region &r) {
  const Span s(r);
  const uint64_t at = s.edge(lane()), word = s.word(r.pattern);
  uint64_t difference = at < s.bytes ? s.start[at] ^ byteOf(r.pattern, at) : 0;
#pragma unroll 8
  for (uint64_t k = lane(); k < s.vectors; k += lanes) {
    const ulonglong2 v = s.body()[k];
    difference |= (v.x ^ word) | (v.y ^ word);
  }
  return __any_sync(allLanes, difference != 0);
}

// examine goes through a region that differs byte by byte. An offset carries
// the byte seen there in its low bits, so that the smallest brings its byte
// along: reading it again could show what a stray writer has written since.
static __device__ Result examine(const Region &r) {
  const uint8_t *start = reinterpret_cast<const uint8_t *>(r.address);
  uint64_t first = noMismatch, differing = 0;
  for (uint64_t at = lane(); at < r.bytes; at += lanes) {
    const uint8_t seen = start[at];
    if (seen == byteOf(r.pattern, at)) continue;
    if (differing++ == 0) first = at << 8 | seen;
  }
  for (uint32_t step = lanes / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(allLanes, first, step);
    first = other < first ? other : first;
    differing += __shfl_xor_sync(allLanes, differing, step);
  }
  if (differing == 0) return Result{noMismatch, 0, 0, 0};
  const uint64_t offset = first >> 8, seen = first & 0xff;
  return Result{offset, differing, byteOf(r.pattern, offset) | seen << 8, 0};
}

extern "C" __global__ void fencepost_verify(const Region *table, Result *results, uint32_t n) {
  eachRegion(table, n, [results](uint32_t i, const Region &r) {
    if (!differs(r)) return;
    const Result result = examine(r);
    if (lane() == 0) results[i] = result;
  });
}

// mixed is what a word at a position adds to a sum. For one position it is a
// bijection of the word, so that no change of a single word goes unseen.
static __device__ uint64_t mixed(uint64_t word, uint64_t position) {
  uint64_t x = word ^ (position + 1) * 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// wordAt is the word at an offset, with zeros for what lies behind the end.
static __device__ uint64_t wordAt(const uint8_t *start, uint64_t bytes, uint64_t at) {
  uint64_t word = 0;
  for (uint64_t i = 0; i < 8 && at + i < bytes; i++) word |= uint64_t{start[at + i]} << (8 * i);
  return word;
}

// checksum is the sum of the region's words, in vectors where it is aligned for
// them. In place of the pattern the record has the offset at which the region
// begins in that of which it is a piece.
static __device__ uint64_t checksum(const Region &r) {
  const uint8_t *start = reinterpret_cast<const uint8_t *>(r.address);
  const ulonglong2 *body = reinterpret_cast<const ulonglong2 *>(r.address);
  const uint64_t before = r.pattern / 8, vectors = r.address % vectorBytes == 0 ? r.bytes / vectorBytes : 0;
  uint64_t sum = 0;
#pragma unroll 8
  for (uint64_t k = lane(); k < vectors; k += lanes) {
    const ulonglong2 v = body[k];
    sum += mixed(v.x, before + 2 * k) + mixed(v.y, before + 2 * k + 1);
  }
  for (uint64_t k = 2 * vectors + lane(); 8 * k < r.bytes; k += lanes) sum += mixed(wordAt(start, r.bytes, 8 * k), before + k);
  for (uint32_t step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(allLanes, sum, step);
  return sum;
}

extern "C" __global__ void fencepost_checksum(const Region *table, Result *results, uint32_t n) {
  eachRegion(table, n, [results](uint32_t i, const Region &r) {
    const uint64_t sum = checksum(r);
    if (lane() == 0) results[i] = Result{sum, 0, 0, 0};
  });
}

static __device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void fencepost_delay(uint64_t ns) {
  const uint64_t bound = ns < longestDelay ? ns : longestDelay;
  for (const uint64_t start = nanoseconds(); nanoseconds() - start < bound;) __nanosleep(200);
}
