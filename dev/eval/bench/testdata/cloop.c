// SPDX-License-Identifier: Apache-2.0
//
// The driver calls of the benchmarks in a plain loop: what the device and its
// driver cost without a runtime. The functions return nanoseconds for all
// rounds, or minus the CUresult of the call that failed. They are called on
// any thread: every call names its stream, pool or event.

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

typedef int (*allocFn)(uint64_t *, uint64_t, uint64_t, uint64_t);
typedef int (*twoFn)(uint64_t, uint64_t);
typedef int (*waitFn)(uint64_t, uint64_t, unsigned);
typedef int (*queryFn)(uint64_t);

static allocFn memAlloc;
static twoFn memFree, eventRecord;
static waitFn streamWait;
static queryFn eventQuery;

int cloop_open(const char *path) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) return -1;
	memAlloc = (allocFn)dlsym(lib, "cuMemAllocFromPoolAsync");
	memFree = (twoFn)dlsym(lib, "cuMemFreeAsync");
	eventRecord = (twoFn)dlsym(lib, "cuEventRecord");
	eventQuery = (queryFn)dlsym(lib, "cuEventQuery");
	streamWait = (waitFn)dlsym(lib, "cuStreamWaitEvent");
	return memAlloc && memFree && eventRecord && eventQuery && streamWait ? 0 : -1;
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// An allocation and its free; every batch calls one record and one query, as
// the runtime does to learn what the device has passed. With ready not 0 it is
// recorded behind every allocation too.
int64_t cloop_pairs(uint64_t n, uint64_t bytes, uint64_t pool, uint64_t stream, uint64_t mark, uint64_t ready) {
	const uint64_t batch = 16;
	int64_t start = now();
	for (uint64_t i = 0; i < n; i++) {
		uint64_t ptr;
		int rc = memAlloc(&ptr, bytes, pool, stream);
		if (rc) return -rc;
		if (ready && (rc = eventRecord(ready, stream))) return -rc;
		if ((rc = memFree(ptr, stream))) return -rc;
		if (i % batch == batch - 1) {
			if ((rc = eventRecord(mark, stream))) return -rc;
			rc = eventQuery(mark);
			if (rc && rc != 600) return -rc;
		}
	}
	return now() - start;
}

// The fences of launches that alternate between two streams: one wait, one
// record.
int64_t cloop_fences(uint64_t n, uint64_t streamA, uint64_t streamB, uint64_t eventA, uint64_t eventB) {
	uint64_t stream[2] = {streamA, streamB}, event[2] = {eventA, eventB};
	int64_t start = now();
	for (uint64_t i = 0; i < n; i++) {
		int rc = streamWait(stream[i % 2], event[(i + 1) % 2], 0);
		if (rc) return -rc;
		if ((rc = eventRecord(event[i % 2], stream[i % 2]))) return -rc;
	}
	return now() - start;
}
