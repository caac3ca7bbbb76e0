// Kernels of a radix sort, a hash join and a filter; sort.go and join.go say the
// same in Go. Rows are 32-bit keys and values. Blocks have 256 threads, one for
// each value of a digit.
//
// Nothing that was read from memory is used as an index unchecked, and no loop
// goes on until memory says so: where a fence is missing the values are wrong,
// and the device goes on.

#include <cstdint>

constexpr uint32_t digits = 256;
constexpr uint32_t lanes = 32;
constexpr uint32_t warps = digits / lanes;
constexpr uint32_t allLanes = 0xffffffff;
constexpr uint32_t noPartner = 0xffffffff;
constexpr uint32_t maxProbes = 1024;

// The rows of one block, where each block takes as many as the others.
struct Slice {
  uint32_t begin, end;

  __device__ explicit Slice(uint32_t n) {
    const uint32_t rows = (n + gridDim.x - 1) / gridDim.x;
    begin = min(n, blockIdx.x * rows);
    end = min(n, begin + rows);
  }
};

static __device__ uint32_t digitOf(uint32_t key, uint32_t shift) { return (key >> shift) % digits; }

static __device__ uint32_t row() { return blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ uint32_t warp() { return threadIdx.x / lanes; }

// countBelow counts those of a mask's lanes that come before this one.
static __device__ uint32_t countBelow(uint32_t mask) { return __popc(mask & ((1u << threadIdx.x % lanes) - 1)); }

// Counts the digits of each slice. A digit's counts of all slices lie side by
// side, so that their running sum is each slice's first place for the digit.
extern "C" __global__ void fencepost_radix_histogram(const uint32_t *keys, uint32_t *counts, uint32_t n, uint32_t shift) {
  __shared__ uint32_t local[digits];
  local[threadIdx.x] = 0;
  __syncthreads();
  const Slice slice(n);
  for (uint32_t i = slice.begin + threadIdx.x; i < slice.end; i += digits) atomicAdd(&local[digitOf(keys[i], shift)], 1u);
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = local[threadIdx.x];
}

// Turns n counts into offsets. One block: each thread adds up one digit.
extern "C" __global__ void fencepost_radix_scan(uint32_t *counts, uint32_t n) {
  __shared__ uint32_t sums[digits];
  const uint32_t slices = n / digits;
  uint32_t *mine = counts + threadIdx.x * slices;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < slices; i++) sum += mine[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (uint32_t step = 1; step < digits; step *= 2) {
    const uint32_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  uint32_t next = sums[threadIdx.x] - sum;
  for (uint32_t i = 0; i < slices; i++) {
    const uint32_t count = mine[i];
    mine[i] = next;
    next += count;
  }
}

// Moves each row to its digit's next place and keeps the order of equal
// digits: a block goes through its slice in tiles of a row a thread, and ranks
// a row by the warps before its own and by the lanes before it in its warp.
extern "C" __global__ void fencepost_radix_scatter(const uint32_t *keys, const uint32_t *values, uint32_t *toKeys, uint32_t *toValues,
                                                   const uint32_t *offsets, uint32_t n, uint32_t shift) {
  // places are, within a tile, each warp's count of a digit, and then its
  // first place for it.
  __shared__ uint32_t places[warps][digits];
  uint32_t next = offsets[threadIdx.x * gridDim.x + blockIdx.x];
  const Slice slice(n);
  for (uint32_t tile = slice.begin; tile < slice.end; tile += digits) {
    for (uint32_t w = 0; w < warps; w++) places[w][threadIdx.x] = 0;
    __syncthreads();
    const uint32_t i = tile + threadIdx.x;
    const bool present = i < slice.end;
    const uint32_t key = present ? keys[i] : 0;
    const uint32_t digit = present ? digitOf(key, shift) : digits;
    const uint32_t peers = __match_any_sync(allLanes, digit);
    const uint32_t rank = countBelow(peers);
    if (present && rank == 0) places[warp()][digit] = __popc(peers);
    __syncthreads();
    for (uint32_t w = 0; w < warps; w++) {
      const uint32_t count = places[w][threadIdx.x];
      places[w][threadIdx.x] = next;
      next += count;
    }
    __syncthreads();
    const uint32_t at = present ? places[warp()][digit] + rank : n;
    if (at < n) {
      toKeys[at] = key;
      toValues[at] = values[i];
    }
    __syncthreads();
  }
}

static __device__ uint32_t hash(uint32_t key) {
  key *= 0x9e3779b1;
  return key ^ (key >> 15);
}

// Empties a hash table of n words: pairs of a key and its value.
extern "C" __global__ void fencepost_join_clear(uint32_t *table, uint32_t n) {
  if (row() < n) table[row()] = noPartner;
}

// Inserts unique keys, with linear probing.
extern "C" __global__ void fencepost_join_build(const uint32_t *keys, const uint32_t *values, uint32_t *table, uint32_t n, uint32_t mask) {
  if (row() >= n) return;
  const uint32_t key = keys[row()];
  for (uint32_t probe = 0; probe < maxProbes; probe++) {
    uint32_t *slot = table + 2 * ((hash(key) + probe) & mask);
    if (atomicCAS(slot, noPartner, key) == noPartner) {
      slot[1] = values[row()];
      return;
    }
  }
}

// Looks each key up: joined is the partner's value, or noPartner.
extern "C" __global__ void fencepost_join_probe(const uint32_t *keys, const uint32_t *table, uint32_t *joined, uint32_t n, uint32_t mask) {
  if (row() >= n) return;
  const uint32_t key = keys[row()];
  uint32_t found = noPartner;
  for (uint32_t probe = 0; probe < maxProbes; probe++) {
    const uint32_t *slot = table + 2 * ((hash(key) + probe) & mask);
    if (slot[0] == noPartner) break;
    if (slot[0] == key) {
      found = slot[1];
      break;
    }
  }
  joined[row()] = found;
}

// Keeps the values of the rows whose partner's value is below a bound. Each
// slice's survivors move to its beginning, in order, and are counted.
extern "C" __global__ void fencepost_filter(const uint32_t *values, const uint32_t *joined, uint32_t *kept, uint32_t *counts, uint32_t n,
                                            uint32_t below) {
  __shared__ uint32_t survivors[warps];
  const Slice slice(n);
  uint32_t next = slice.begin;
  for (uint32_t tile = slice.begin; tile < slice.end; tile += digits) {
    const uint32_t i = tile + threadIdx.x;
    const bool keep = i < slice.end && joined[i] < below;
    const uint32_t peers = __ballot_sync(allLanes, keep);
    if (threadIdx.x % lanes == 0) survivors[warp()] = __popc(peers);
    __syncthreads();
    uint32_t at = next + countBelow(peers);
    for (uint32_t w = 0; w < warps; w++) {
      at += w < warp() ? survivors[w] : 0;
      next += survivors[w];
    }
    if (keep) kept[at] = values[i];
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = next - slice.begin;
}
