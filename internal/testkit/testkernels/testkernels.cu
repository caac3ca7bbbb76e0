// Kernels for tests: honest ones whose results are easily checked, slow ones
// that make a missing fence show, and ones with planted bugs. Words have 64
// bits. testkernels.go says what each is called and takes.

#include <cstdint>

static __device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

static __device__ uint64_t firstWord() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

static __device__ uint64_t nextWord() { return uint64_t{gridDim.x} * blockDim.x; }

// Keeps its stream busy for a time.
extern "C" __global__ void fencepost_test_delay(uint64_t ns) {
  for (const uint64_t start = nanoseconds(); nanoseconds() - start < ns;) __nanosleep(200);
}

// Keeps its stream busy until a word of mapped host memory is not zero. It
// gives up after ten seconds, so that a test which fails does not hang.
extern "C" __global__ void fencepost_test_hold(const volatile uint64_t *flag) {
  for (const uint64_t start = nanoseconds(); *flag == 0 && nanoseconds() - start < 10000000000;) __nanosleep(1000);
}

extern "C" __global__ void fencepost_test_write(uint64_t *words, uint64_t n, uint64_t value) {
  for (uint64_t i = firstWord(); i < n; i += nextWord()) words[i] = value;
}

// Adds the number of words that differ to mismatches.
extern "C" __global__ void fencepost_test_check(const uint64_t *words, uint64_t n, uint64_t expected, unsigned long long *mismatches) {
  unsigned long long differing = 0;
  for (uint64_t i = firstWord(); i < n; i += nextWord()) differing += words[i] != expected;
  if (differing > 0) atomicAdd(mismatches, differing);
}

extern "C" __global__ void fencepost_test_copy_add(uint64_t *to, const uint64_t *from, uint64_t n, uint64_t add) {
  for (uint64_t i = firstWord(); i < n; i += nextWord()) to[i] = from[i] + add;
}

// Adds the sum of all words to out, in as little time as reading them takes:
// a yardstick for kernels that read. words is aligned to 16 bytes.
extern "C" __global__ void fencepost_test_read_all(const uint64_t *words, uint64_t n, unsigned long long *out) {
  __shared__ unsigned long long block;
  if (threadIdx.x == 0) block = 0;
  __syncthreads();
  const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(words);
  unsigned long long sum = n % 2 == 1 && firstWord() == 0 ? words[n - 1] : 0;
#pragma unroll 8
  for (uint64_t i = firstWord(); i < n / 2; i += nextWord()) {
    const ulonglong2 pair = pairs[i];
    sum += pair.x + pair.y;
  }
  for (uint32_t step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(&block, sum);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, block);
}

// Writes a word to an address that the caller has made up.
extern "C" __global__ void fencepost_test_illegal(volatile uint64_t *wild) { *wild = 0x4242424242424242; }

// Writes words behind the n that it may write.
extern "C" __global__ void fencepost_test_oob(uint64_t *words, uint64_t n, uint64_t beyond) {
  for (uint64_t i = firstWord(); i < beyond; i += nextWord()) words[n + i] = 0x4242424242424242;
}
