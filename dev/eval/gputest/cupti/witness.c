// SPDX-License-Identifier: Apache-2.0
//
// A witness of the times of kernels, which CUPTI takes beside the runtime. Build it with
//
//	gcc -shared -fPIC -O2 -DKERNEL=CUpti_ActivityKernel10 -I$CUPTI/include -I$CUDA/include -o witness.so witness.c -L$CUPTI/lib64 -lcupti -Wl,-rpath,$CUPTI/lib64
//
// and let the driver load it: CUDA_INJECTION64_PATH=witness.so CUPTI_WITNESS=FILE. The file gets a line
//
//	kernel CORRELATION STREAM BEGIN END NAME
//
// for each kernel, in CUPTI's nanoseconds, and each 100 ms
//
//	clock CUPTI REALTIME APART
//
// which says what CUPTI's clock was at a time of CLOCK_REALTIME, read before and after, so far apart: on an H100 with driver 580
// and CUDA 13.0 the two are one clock. Whoever makes the file
// FILE.flush has all that CUPTI knows of in FILE when FILE.flush is gone again.
#include <cupti.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef KERNEL // the newest record of a kernel in the toolkit's cupti_activity.h: the tenth of CUDA 13.0
#define KERNEL CUpti_ActivityKernel9
#endif

static FILE *out; // its own lock keeps lines whole
static char wanted[4096];

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
	*size = 1 << 20;
	*buffer = aligned_alloc(8, *size);
	*records = 0;
}

static void completed(CUcontext c, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
	CUpti_Activity *r = NULL;
	(void)c, (void)stream, (void)size;
	while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS) {
		if (r->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
			continue;
		const KERNEL *k = (const KERNEL *)r;
		fprintf(out, "kernel %u %u %llu %llu %s\n", k->correlationId, k->streamId, (unsigned long long)k->start,
			(unsigned long long)k->end, k->name);
	}
	size_t dropped = 0;
	if (cuptiActivityGetNumDroppedRecords(c, stream, &dropped) == CUPTI_SUCCESS && dropped > 0)
		fprintf(out, "dropped %zu\n", dropped);
	free(buffer);
}

static long long realtime(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// pair notes the closest of a few readings.
static void pair(void) {
	long long apart = INT64_MAX, at = 0;
	uint64_t on = 0;
	for (int i = 0; i < 10; i++) {
		uint64_t t;
		long long before = realtime();
		if (cuptiGetTimestamp(&t) != CUPTI_SUCCESS)
			return;
		long long took = realtime() - before;
		if (took < apart)
			apart = took, at = before + took / 2, on = t;
	}
	fprintf(out, "clock %llu %lld %lld\n", (unsigned long long)on, at, apart);
}

static void *serve(void *unused) {
	(void)unused;
	for (unsigned i = 0;; i++) {
		if (i % 10 == 0)
			pair();
		usleep(10000);
		if (access(wanted, F_OK) == 0) {
			cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
			pair();
			fflush(out);
			unlink(wanted);
		}
	}
	return NULL;
}

int InitializeInjection(void) {
	pthread_t server;
	const char *name = getenv("CUPTI_WITNESS");
	if (name == NULL || (out = fopen(name, "w")) == NULL)
		return 0;
	snprintf(wanted, sizeof wanted, "%s.flush", name);
	CUptiResult r = cuptiActivityRegisterCallbacks(requested, completed);
	if (r == CUPTI_SUCCESS)
		r = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
	fprintf(out, "enabled %d\n", (int)r);
	fflush(out);
	return r == CUPTI_SUCCESS && pthread_create(&server, NULL, serve, NULL) == 0;
}
