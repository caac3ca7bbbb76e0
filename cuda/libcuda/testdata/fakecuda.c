// A libcuda.so.1 for tests: devices of host memory behind the functions that
// package libcuda calls, with CUDA's rules about contexts, handles and order.
//
// Work runs at once, on the caller's thread, unless its stream is held
// (fake_hold) or waits for one that is. Everything happens under one lock. The
// functions fake_* are for the tests: they count calls, keep the last
// arguments, and make chosen calls fail.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
	INVALID_PTX = 218, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, NEWER_THAN_US = 4321,
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED, CAPTURE_MERGE, CAPTURE_UNMATCHED, CAPTURE_UNJOINED, CAPTURE_ISOLATION,
	CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

// ---- settings and calls, for the tests

static struct { const char *key; u64 value; } settings[] = {
	{"version", 13000}, {"init", 0}, {"devices", 2}, {"bytes", 4ULL << 30}, {"pools", 1}, {"vmm", 1}, {"mig", 0}, {"mode", 0},
	{"strict", 0},   // 1: every call needs a current context
	{"foreign", 0},  // 1: a call on which another context is current is refused
	{"drowsy", 0},   // how long a push of a context sleeps, in microseconds
};

static u64 *setting(const char *key) {
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (strcmp(settings[i].key, key) == 0) return &settings[i].value;
	abort();
}

void fake_set(const char *key, u64 value) { *setting(key) = value; }

struct call { const char *name; u64 count, args[12], fail_in; int code; };

static struct call calls[128];

static struct call *call_of(const char *name) {
	struct call *c = calls;
	while (c->name && strcmp(c->name, name)) c++;
	if (!c->name) c->name = strdup(name);
	return c;
}

// fake_fail makes call nth from now of a function, of any for the empty name,
// fail with code; 0 clears.
void fake_fail(const char *name, u64 nth, int code) {
	pthread_mutex_lock(&lock);
	call_of(name)->fail_in = nth;
	call_of(name)->code = code;
	pthread_mutex_unlock(&lock);
}

static u64 calls_locked(const char *name) {
	u64 sum = 0;
	for (struct call *c = calls; c->name; c++)
		if (!*name || strcmp(c->name, name) == 0) sum += c->count;
	return sum;
}

// fake_calls counts the calls of a function, of all for the empty name.
u64 fake_calls(const char *name) {
	pthread_mutex_lock(&lock);
	u64 n = calls_locked(name);
	pthread_mutex_unlock(&lock);
	return n;
}

// fake_arg is argument i of the last call of a function.
u64 fake_arg(const char *name, int i) { return call_of(name)->args[i]; }

// ---- objects: everything that a handle or an address stands for

enum kind { CONTEXT, POOL, STREAM, EVENT, BLOCK, HOST, MODULE, GRAPH, EXEC, RANGE, MEMORY, FUNCTION, MAPPING, KINDS };

// mark is one record of an event; waits that were queued keep it.
struct mark {
	int done;
	struct timespec at;
};

struct op {
	enum { MEMSET, COPY, FREE, RECORD, WAIT, LAUNCH } kind;
	char *dst, *src;
	size_t n;
	struct mark *mark;
	struct object *object;
	u64 args[12];
	struct op *next;
};

struct object {
	enum kind kind;
	struct object *next, *pool, *next_stream;
	char *memory;
	size_t bytes, used, used_high, reserved, reserved_high, max;
	u64 attributes[5];
	struct op *head, **tail;
	int held, device, retained, timing;
	u64 id;
	struct mark *mark;
	char *text;
	struct capture *capture; // a stream's, and that an event was last recorded in
	int reach[8], place;     // see struct capture
	struct object *mapped;   // a mapping's memory
	int access, mappings;    // of a mapping: the device may touch it; of memory or a range: its mappings
};

static struct object *table[1024], *streams, *primaries[16];
static u64 live[KINDS], ids, device_used;

static struct object **slot(u64 key) { return &table[key >> 6 & 1023]; }
static u64 key_of(struct object *o) { return o->kind == BLOCK || o->kind == HOST || o->kind == RANGE || o->kind == MAPPING ? (u64)o->memory : (u64)o; }

static struct object *add(enum kind kind, void *memory) {
	struct object *o = aligned_alloc(64, (sizeof *o + 63) / 64 * 64);
	*o = (struct object){.kind = kind, .memory = memory, .id = ++ids};
	o->next = *slot(key_of(o));
	*slot(key_of(o)) = o;
	live[kind]++;
	return o;
}

static struct object *find(enum kind kind, u64 key) {
	for (struct object *o = *slot(key); o; o = o->next)
		if (o->kind == kind && key_of(o) == key) return o;
	return NULL;
}

// take ends the handle; what still refers to the object may go on using it.
static void take(struct object *o) {
	struct object **at = slot(key_of(o));
	while (*at != o) at = &(*at)->next;
	*at = o->next;
	live[o->kind]--;
}

enum { GRANULE = 2 << 20 };

// holder is the object of a kind that all n bytes at p lie in.
static struct object *holder(enum kind kind, u64 p, size_t n) {
	for (size_t i = 0; i < 1024; i++)
		for (struct object *o = table[i]; o; o = o->next)
			if (o->kind == kind && p >= (u64)o->memory && p + n <= (u64)o->memory + o->bytes) return o;
	return NULL;
}

// reachable says whether n bytes at p lie in one block, or in mappings in a row.
static int reachable(u64 p, size_t n) {
	if (holder(BLOCK, p, n) || holder(HOST, p, n)) return 1;
	for (u64 at = p; at < p + n; at = at / GRANULE * GRANULE + GRANULE) {
		struct object *o = holder(MAPPING, at, 1);
		if (!o || !o->access) return 0;
	}
	return 1;
}

// fake_live counts the objects of a kind.
u64 fake_live(int kind) { return live[kind]; }

// ---- contexts and entry

static __thread struct object *current[16];
static __thread int depth;

static struct object *top(void) { return depth ? current[depth - 1] : NULL; }

// fake_current is the calling thread's context.
u64 fake_current(void) { return (u64)top(); }

enum need { NOTHING, EXPLICIT, BOUND };

// enter begins every function: under the lock from here to leave.
static int enter(const char *name, enum need need, const u64 *args, size_t n) {
	pthread_mutex_lock(&lock);
	struct call *c = call_of(name);
	c->count++;
	memcpy(c->args, args, n * sizeof *args);
	struct call *any = call_of("");
	if (any->fail_in && --any->fail_in == 0) return any->code;
	if (c->fail_in && --c->fail_in == 0) return c->code;
	struct object *t = top();
	if (t && !t->retained) t = NULL;
	if ((need == BOUND || (need == EXPLICIT && *setting("strict"))) && !t) return INVALID_CONTEXT;
	if (need == EXPLICIT && *setting("foreign") && t && t != primaries[0]) return INVALID_HANDLE;
	return SUCCESS;
}

static int leave(int code) {
	pthread_mutex_unlock(&lock);
	return code;
}

#define ENTER(need, ...)                                                                  \
	do {                                                                                  \
		u64 a[] = {__VA_ARGS__};                                                          \
		int code = enter(__func__, need, a, sizeof a / sizeof *a);                        \
		if (code) return leave(code);                                                     \
	} while (0)

// A default stream means that of the current context.
#define ON(stream) ((u64)(stream) <= 2 ? BOUND : EXPLICIT)

static struct object *new_stream(void) {
	struct object *s = add(STREAM, NULL);
	s->tail = &s->head;
	s->next_stream = streams;
	return streams = s;
}

static struct object *stream_of(u64 handle) {
	if (handle > 2) return find(STREAM, handle);
	struct object *c = top();
	if (!c->pool) {
		c->pool = new_stream(); // a context's is its default stream
		live[STREAM]--;
	}
	return c->pool;
}

// ---- running

static void fill(u64 table_, u64 n) {
	for (u64 i = 0; i < n; i++) {
		u64 *r = (u64 *)table_ + 4 * i;
		for (u64 b = 0; b < r[1]; b++) ((char *)r[0])[b] = ((char *)&r[2])[b % 8];
	}
}

static void fill_few(u64 *r) {
	for (int i = 0; i < 4; i++, r += 3)
		for (u64 b = 0; b < r[1]; b++) ((char *)r[0])[b] = ((char *)&r[2])[b % 8];
}

static void verify(u64 table_, u64 results, u64 n) {
	for (u64 i = 0; i < n; i++) {
		u64 *r = (u64 *)table_ + 4 * i, *out = (u64 *)results + 4 * i;
		u64 bad = 0;
		for (u64 b = 0; b < r[1]; b++) {
			unsigned char want = ((unsigned char *)&r[2])[b % 8], seen = ((unsigned char *)r[0])[b];
			if (want != seen && bad++ == 0) out[0] = b, out[2] = want | seen << 8, out[3] = 0;
		}
		if (bad) out[1] = bad;
	}
}

static void checksum(u64 table_, u64 results, u64 n) {
	for (u64 i = 0; i < n; i++) {
		u64 *r = (u64 *)table_ + 4 * i, *out = (u64 *)results + 4 * i;
		out[0] = out[1] = out[2] = out[3] = 0;
		for (u64 at = 0; at < r[1]; at += 8) {
			u64 word = 0;
			memcpy(&word, (char *)r[0] + at, r[1] - at < 8 ? r[1] - at : 8);
			u64 x = word ^ ((r[2] + at) / 8 + 1) * 0x9E3779B97F4A7C15;
			x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
			x = (x ^ x >> 27) * 0x94D049BB133111EB;
			out[0] += x ^ x >> 31;
		}
	}
}

static u64 echoed[64];

// fake_echoed is argument i of the last launch of a kernel fake_echo<n>.
u64 fake_echoed(int i) { return echoed[i]; }

static void run(struct op *o) {
	switch (o->kind) {
	case MEMSET: memset(o->dst, (int)o->args[0], o->n); break;
	case COPY: memmove(o->dst, o->src, o->n); break;
	case FREE: free(o->object->memory); free(o->object); break;
	case RECORD:
		clock_gettime(CLOCK_MONOTONIC, &o->mark->at);
		o->mark->done = 1;
		break;
	case WAIT: break;
	case LAUNCH:
		if (!strcmp(o->object->text, "fencepost_fill")) fill(o->args[0], (uint32_t)o->args[1]);
		if (!strcmp(o->object->text, "fencepost_fill_few")) fill_few(o->args);
		if (!strcmp(o->object->text, "fencepost_verify")) verify(o->args[0], o->args[1], (uint32_t)o->args[2]);
		if (!strcmp(o->object->text, "fencepost_checksum")) checksum(o->args[0], o->args[1], (uint32_t)o->args[2]);
	}
}

// capture is a capture sequence. Its streams have places, and of each place
// the operations are counted; a reach says up to where something comes after.
struct capture {
	enum { GLOBAL, THREAD_LOCAL, RELAXED } mode;
	pthread_t thread;
	struct object *streams[8];
	struct op *head, **tail;
	int n, counts[8], invalid, ended;
	struct capture *next;
};

static struct capture *captures;
static __thread int capture_mode = GLOBAL;

static int refuse(struct capture *c, int code) {
	c->invalid = 1;
	return code;
}

// unsafe says whether a call that CUDA calls potentially unsafe is prohibited.
static int unsafe(void) {
	int code = SUCCESS;
	for (struct capture *c = captures; c; c = c->next) {
		int own = pthread_equal(c->thread, pthread_self());
		if (c->ended || c->mode == RELAXED || capture_mode == RELAXED) continue;
		if (own || (c->mode == GLOBAL && capture_mode == GLOBAL)) code = refuse(c, CAPTURE_UNSUPPORTED);
	}
	return code;
}

#define UNSAFE()                                                                          \
	do {                                                                                  \
		int code = unsafe();                                                              \
		if (code) return leave(code);                                                     \
	} while (0)

static int anywhere(void) {
	int code = SUCCESS;
	for (struct capture *c = captures; c; c = c->next)
		if (!c->ended) code = refuse(c, CAPTURE_UNSUPPORTED);
	return code;
}

static void draw_in(struct capture *c, struct object *s, const int *reach) {
	s->capture = c;
	s->place = c->n;
	c->streams[c->n++] = s;
	memset(s->reach, 0, sizeof s->reach);
	for (int i = 0; reach && i < 8; i++) s->reach[i] = reach[i];
}

static int keep(struct object *s, struct op o) {
	struct capture *c = s->capture;
	if (c->invalid) return CAPTURE_INVALIDATED;
	if (o.kind == FREE) return refuse(c, CAPTURE_UNSUPPORTED); // no memory nodes here
	struct op *copy = malloc(sizeof o);
	*copy = o;
	*c->tail = copy;
	c->tail = &copy->next;
	s->reach[s->place] = ++c->counts[s->place];
	return SUCCESS;
}

static int wait_captured(struct object *s, struct object *e) {
	struct capture *into = s->capture, *of = e->capture;
	if ((into && into->invalid) || (of && of->invalid)) return CAPTURE_INVALIDATED;
	if (!into && of->ended) return CAPTURED_EVENT;
	if (!into) draw_in(of, s, e->reach);
	if (!into) return SUCCESS;
	if (into == of) {
		for (int i = 0; i < 8; i++)
			if (e->reach[i] > s->reach[i]) s->reach[i] = e->reach[i];
		return SUCCESS;
	}
	if (of && !of->ended) {
		of->invalid = 1;
		return refuse(into, CAPTURE_MERGE);
	}
	return of || e->mark ? refuse(into, CAPTURE_ISOLATION) : SUCCESS;
}

static void progress(void) {
	for (int again = 1; again;) {
		again = 0;
		for (struct object *s = streams; s; s = s->next_stream) {
			struct op *o;
			while (!s->held && (o = s->head) && (o->kind != WAIT || o->mark->done)) {
				if (!(s->head = o->next)) s->tail = &s->head;
				run(o);
				free(o);
				again = 1;
			}
		}
	}
	pthread_cond_broadcast(&moved);
}

static int push(struct object *s, struct op o) {
	if (s->capture) return keep(s, o);
	struct op *copy = malloc(sizeof o);
	*copy = o;
	*s->tail = copy;
	s->tail = &copy->next;
	progress();
	return SUCCESS;
}

// fake_hold keeps what is enqueued on a stream from running while on.
void fake_hold(u64 stream, int on) {
	pthread_mutex_lock(&lock);
	struct object *s = find(STREAM, stream);
	if (s) s->held = on;
	progress();
	pthread_mutex_unlock(&lock);
}

// ---- the driver API: initialisation, errors, devices

int cuDriverGetVersion(int *version) {
	ENTER(NOTHING, (u64)version);
	*version = (int)*setting("version");
	return leave(SUCCESS);
}

int cuInit(unsigned flags) {
	ENTER(NOTHING, flags);
	return leave((int)*setting("init"));
}

static int text(int code, const char **out, const char *known, const char *newer) {
	*out = code == OUT_OF_MEMORY ? known : code == NEWER_THAN_US ? newer : NULL;
	return leave(*out ? SUCCESS : INVALID_VALUE);
}

int cuGetErrorName(int code, const char **out) {
	ENTER(NOTHING, code, (u64)out);
	return text(code, out, "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_NEWER_THAN_US");
}

int cuGetErrorString(int code, const char **out) {
	ENTER(NOTHING, code, (u64)out);
	return text(code, out, "out of memory, says the fake", "an error of a later driver");
}

int cuDeviceGetCount(int *count) {
	ENTER(NOTHING, (u64)count);
	*count = (int)*setting("devices");
	return leave(SUCCESS);
}

int cuDeviceGet(int *device, int ordinal) {
	ENTER(NOTHING, (u64)device, ordinal);
	if (ordinal < 0 || (u64)ordinal >= *setting("devices")) return leave(INVALID_DEVICE);
	*device = ordinal;
	return leave(SUCCESS);
}

int cuDeviceGetName(char *name, int n, int device) {
	ENTER(NOTHING, (u64)name, n, device);
	snprintf(name, n, "Fake GPU%s", *setting("mig") ? " MIG 1g.10gb" : "");
	return leave(SUCCESS);
}

int cuDeviceGetUuid_v2(char *uuid, int device) {
	ENTER(NOTHING, (u64)uuid, device);
	for (int i = 0; i < 16; i++) uuid[i] = (char)(0xf0 + i + device);
	return leave(SUCCESS);
}

int cuDeviceGetPCIBusId(char *id, int n, int device) {
	ENTER(NOTHING, (u64)id, n, device);
	snprintf(id, n, "0000:%02X:00.0", 0x1a + device);
	return leave(SUCCESS);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	ENTER(NOTHING, (u64)value, attribute, device);
	switch (attribute) {
	case 16: *value = 132; break;
	case 20: *value = (int)*setting("mode"); break;
	case 40: *value = 3; break;
	case 75: *value = 9; break;
	case 31: case 32: case 41: *value = 1; break;
	case 102: *value = (int)*setting("vmm"); break;
	case 115: *value = (int)*setting("pools"); break;
	default: *value = 0;
	}
	return leave(SUCCESS);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
	ENTER(NOTHING, (u64)bytes, device);
	*bytes = *setting("bytes");
	return leave(SUCCESS);
}

// ---- contexts

static struct object *primary(int device) {
	if (!primaries[device]) {
		primaries[device] = add(CONTEXT, NULL);
		live[CONTEXT]--;
		primaries[device]->device = device;
	}
	return primaries[device];
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
	ENTER(NOTHING, (u64)context, device);
	primary(device)->retained++;
	live[CONTEXT]++;
	*context = primary(device);
	return leave(SUCCESS);
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
	ENTER(NOTHING, device, (u64)flags, (u64)active);
	*flags = 0;
	*active = primary(device)->retained > 0;
	return leave(SUCCESS);
}

// The attributes of core dumps. A file's is its first bytes.
static unsigned char dump_attributes[8][1024];

int cuCoredumpGetAttributeGlobal(unsigned attribute, void *value, size_t *size) {
	ENTER(NOTHING, attribute, (u64)value, (u64)size);
	if (attribute > 7 || *size > 1024) return leave(INVALID_VALUE);
	memcpy(value, dump_attributes[attribute], *size);
	return leave(SUCCESS);
}

int cuCoredumpSetAttributeGlobal(unsigned attribute, void *value, size_t *size) {
	ENTER(NOTHING, attribute, (u64)value, (u64)size);
	if (attribute > 7 || *size > 1024) return leave(INVALID_VALUE);
	memset(dump_attributes[attribute], 0, 1024);
	memcpy(dump_attributes[attribute], value, *size);
	return leave(SUCCESS);
}

// fake_dump_attribute is byte i of an attribute.
u64 fake_dump_attribute(u64 attribute, u64 i) { return dump_attributes[attribute][i]; }

int cuDevicePrimaryCtxRelease_v2(int device) {
	ENTER(NOTHING, device);
	if (!primary(device)->retained) return leave(INVALID_CONTEXT);
	primary(device)->retained--;
	live[CONTEXT]--;
	return leave(SUCCESS);
}

int cuCtxPushCurrent_v2(void *context) {
	ENTER(NOTHING, (u64)context);
	if (!find(CONTEXT, (u64)context) || depth == 16) return leave(INVALID_CONTEXT);
	current[depth++] = context;
	useconds_t pause = (useconds_t)*setting("drowsy");
	leave(SUCCESS);
	if (pause) usleep(pause); // long enough for Go to move the caller to another thread
	return SUCCESS;
}

int cuCtxPopCurrent_v2(void **context) {
	ENTER(NOTHING, (u64)context);
	if (!depth) return leave(INVALID_CONTEXT);
	*context = current[--depth];
	return leave(SUCCESS);
}

static int busy(void) {
	for (struct object *s = streams; s; s = s->next_stream)
		if (s->head) return 1;
	return 0;
}

int cuCtxSynchronize(void) {
	ENTER(BOUND, 0);
	if (anywhere()) return leave(CAPTURE_UNSUPPORTED);
	while (busy()) pthread_cond_wait(&moved, &lock);
	return leave(SUCCESS);
}

// ---- memory


static int allocate(u64 *ptr, size_t bytes, struct object *pool) {
	if (!bytes) return INVALID_VALUE;
	if (bytes > *setting("bytes") - device_used || (pool && pool->max && bytes > pool->max - pool->used)) return OUT_OF_MEMORY;
	struct object *o = add(BLOCK, aligned_alloc(512, (bytes + 511) / 512 * 512));
	o->bytes = bytes;
	o->pool = pool;
	device_used += bytes;
	if (pool) {
		pool->used += bytes;
		if (pool->used > pool->used_high) pool->used_high = pool->used;
		if (pool->used > pool->reserved) pool->reserved = pool->used;
		if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
	}
	*ptr = (u64)o->memory;
	return SUCCESS;
}

static struct object *deallocate(u64 ptr) {
	struct object *o = find(BLOCK, ptr);
	if (!o) return NULL;
	take(o);
	device_used -= o->bytes;
	if (o->pool) o->pool->used -= o->bytes;
	return o;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
	ENTER(BOUND, (u64)available, (u64)total);
	*total = *setting("bytes");
	*available = *total - device_used;
	return leave(SUCCESS);
}

int cuMemAlloc_v2(u64 *ptr, size_t bytes) {
	ENTER(BOUND, (u64)ptr, bytes);
	UNSAFE();
	return leave(allocate(ptr, bytes, NULL));
}

int cuMemFree_v2(u64 ptr) {
	ENTER(BOUND, ptr);
	UNSAFE();
	struct object *o = deallocate(ptr);
	if (!o) return leave(INVALID_VALUE);
	while (busy()) pthread_cond_wait(&moved, &lock);
	free(o->memory);
	free(o);
	return leave(SUCCESS);
}

int cuMemAllocFromPoolAsync(u64 *ptr, size_t bytes, void *pool, void *stream) {
	ENTER(ON(stream), (u64)ptr, bytes, (u64)pool, (u64)stream);
	struct object *p = find(POOL, (u64)pool), *s = stream_of((u64)stream);
	if (!p || !s) return leave(INVALID_HANDLE);
	if (s->capture) return leave(refuse(s->capture, CAPTURE_UNSUPPORTED)); // no memory nodes here
	UNSAFE();
	return leave(allocate(ptr, bytes, p));
}

int cuMemFreeAsync(u64 ptr, void *stream) {
	ENTER(ON(stream), ptr, (u64)stream);
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	if (s->capture) return leave(refuse(s->capture, CAPTURE_UNSUPPORTED));
	UNSAFE();
	struct object *o = deallocate(ptr);
	return leave(o ? push(s, (struct op){.kind = FREE, .object = o}) : INVALID_VALUE);
}

int cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags) {
	ENTER(BOUND, (u64)ptr, bytes, flags);
	UNSAFE();
	if (!bytes) return leave(INVALID_VALUE);
	struct object *o = add(HOST, aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
	o->bytes = bytes;
	*ptr = o->memory;
	return leave(SUCCESS);
}

int cuMemHostGetDevicePointer_v2(u64 *device, void *host, unsigned flags) {
	ENTER(BOUND, (u64)device, (u64)host, flags);
	if (!find(HOST, (u64)host)) return leave(INVALID_VALUE);
	*device = (u64)host;
	return leave(SUCCESS);
}

int cuMemFreeHost(void *ptr) {
	ENTER(BOUND, (u64)ptr);
	UNSAFE();
	struct object *o = find(HOST, (u64)ptr);
	if (!o) return leave(INVALID_VALUE);
	take(o);
	free(o->memory);
	free(o);
	return leave(SUCCESS);
}

// ---- mapped memory

struct location { int type, id; };
struct allocation_prop {
	int type, handle_types;
	struct location location;
	void *win32;
	struct { unsigned char compression, rdma; uint16_t usage; unsigned char reserved[4]; } flags;
};
struct access_desc { struct location location; int flags; };
_Static_assert(sizeof(struct allocation_prop) == 32, "CUmemAllocationProp has 32 bytes");
_Static_assert(sizeof(struct access_desc) == 12, "CUmemAccessDesc has 12 bytes");

static int plain(const struct allocation_prop *p) {
	static const struct allocation_prop none;
	return p->type == 1 && !p->handle_types && p->location.type == 1 && p->location.id < (int)*setting("devices") && !p->win32 &&
		!memcmp(&p->flags, &none.flags, sizeof p->flags);
}

int cuMemGetAllocationGranularity(size_t *granularity, const struct allocation_prop *p, int option) {
	ENTER(BOUND, (u64)granularity, (u64)p, option);
	UNSAFE();
	if (!plain(p) || option) return leave(INVALID_VALUE);
	*granularity = GRANULE;
	return leave(SUCCESS);
}

int cuMemAddressReserve(u64 *ptr, size_t bytes, size_t align, u64 at, u64 flags) {
	ENTER(BOUND, (u64)ptr, bytes, align, at, flags);
	UNSAFE();
	if (!bytes || bytes % GRANULE || align & (align - 1) || flags) return leave(INVALID_VALUE);
	char *p = mmap(NULL, bytes + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) return leave(OUT_OF_MEMORY);
	u64 first = ((u64)p + GRANULE - 1) / GRANULE * GRANULE;
	if (first > (u64)p) munmap(p, first - (u64)p);
	if (first < (u64)p + GRANULE) munmap((char *)first + bytes, (u64)p + GRANULE - first);
	add(RANGE, (void *)first)->bytes = bytes;
	*ptr = first;
	return leave(SUCCESS);
}

int cuMemAddressFree(u64 ptr, size_t bytes) {
	ENTER(BOUND, ptr, bytes);
	UNSAFE();
	struct object *o = find(RANGE, ptr);
	if (!o || o->bytes != bytes || o->mappings) return leave(INVALID_VALUE);
	take(o);
	munmap(o->memory, bytes);
	free(o);
	return leave(SUCCESS);
}

int cuMemCreate(u64 *handle, size_t bytes, const struct allocation_prop *p, u64 flags) {
	ENTER(BOUND, (u64)handle, bytes, (u64)p, flags, p->location.id);
	UNSAFE();
	if (!bytes || bytes % GRANULE || !plain(p) || flags) return leave(INVALID_VALUE);
	if (bytes > *setting("bytes") - device_used) return leave(OUT_OF_MEMORY);
	struct object *o = add(MEMORY, NULL);
	o->bytes = bytes;
	o->retained = 1;
	device_used += bytes;
	*handle = (u64)o;
	return leave(SUCCESS);
}

// unless_used ends memory that has neither handle nor mapping.
static void unless_used(struct object *o) {
	if (o->retained || o->mappings) return;
	device_used -= o->bytes;
	free(o);
}

int cuMemRelease(u64 handle) {
	ENTER(BOUND, handle);
	UNSAFE();
	struct object *o = find(MEMORY, handle);
	if (!o) return leave(INVALID_VALUE);
	take(o);
	o->retained = 0;
	unless_used(o);
	return leave(SUCCESS);
}

int cuMemMap(u64 ptr, size_t bytes, size_t offset, u64 handle, u64 flags) {
	ENTER(BOUND, ptr, bytes, offset, handle, flags);
	UNSAFE();
	struct object *in = holder(RANGE, ptr, bytes), *m = find(MEMORY, handle);
	if (!in || ptr % GRANULE || !m || offset || flags || m->bytes != bytes || m->mappings) return leave(INVALID_VALUE);
	for (u64 at = ptr; at < ptr + bytes; at += GRANULE)
		if (holder(MAPPING, at, 1)) return leave(INVALID_VALUE);
	struct object *o = add(MAPPING, (void *)ptr);
	o->bytes = bytes;
	o->mapped = m;
	in->mappings++;
	m->mappings++;
	return leave(SUCCESS);
}

// whole says whether mappings in a row are all of a part of one range.
static int whole(u64 ptr, size_t bytes) {
	u64 at = ptr;
	while (at < ptr + bytes) {
		struct object *o = find(MAPPING, at);
		if (!o) return 0;
		at += o->bytes;
	}
	return bytes && at == ptr + bytes && holder(RANGE, ptr, bytes);
}

int cuMemSetAccess(u64 ptr, size_t bytes, const struct access_desc *d, size_t n) {
	ENTER(BOUND, ptr, bytes, (u64)d, n, d->location.type, d->location.id, d->flags);
	UNSAFE();
	if (!whole(ptr, bytes) || n != 1 || d->location.type != 1 || d->flags != 3) return leave(INVALID_VALUE);
	mprotect((void *)ptr, bytes, PROT_READ | PROT_WRITE);
	for (u64 at = ptr; at < ptr + bytes; at += find(MAPPING, at)->bytes) find(MAPPING, at)->access = 1;
	return leave(SUCCESS);
}

int cuMemUnmap(u64 ptr, size_t bytes) {
	ENTER(BOUND, ptr, bytes);
	UNSAFE();
	if (!whole(ptr, bytes)) return leave(INVALID_VALUE);
	mmap((void *)ptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	for (u64 at = ptr; at < ptr + bytes;) {
		struct object *o = find(MAPPING, at);
		at += o->bytes;
		holder(RANGE, ptr, bytes)->mappings--;
		o->mapped->mappings--;
		unless_used(o->mapped);
		take(o);
		free(o);
	}
	return leave(SUCCESS);
}

enum { HOST_SIDE = -1 };

// stray says whether a copy would be of memory across mappings with no context
// current, which the driver refuses. It makes fills all the same.
static int stray(u64 p, size_t n) { return !top() && n && holder(MAPPING, p, 1) && !holder(MAPPING, p, n); }

// transfer checks the device addresses of an operation and queues it.
static int transfer(u64 stream, u64 to, u64 from, size_t n, struct op o) {
	struct object *s = stream_of(stream);
	if (!s) return INVALID_HANDLE;
	if ((to != (u64)HOST_SIDE && !reachable(to, n)) || (from != (u64)HOST_SIDE && !reachable(from, n))) return INVALID_VALUE;
	o.n = n;
	return push(s, o);
}

int cuMemsetD8Async(u64 dst, unsigned char value, size_t n, void *stream) {
	ENTER(ON(stream), dst, value, n, (u64)stream);
	return leave(transfer((u64)stream, dst, HOST_SIDE, n, (struct op){.kind = MEMSET, .dst = (char *)dst, .args = {value}}));
}

int cuMemcpyHtoDAsync_v2(u64 dst, const void *src, size_t n, void *stream) {
	ENTER(ON(stream), dst, (u64)src, n, (u64)stream);
	if (stray(dst, n)) return leave(INVALID_VALUE);
	return leave(transfer((u64)stream, dst, HOST_SIDE, n, (struct op){.kind = COPY, .dst = (char *)dst, .src = (char *)src}));
}

int cuMemcpyDtoHAsync_v2(void *dst, u64 src, size_t n, void *stream) {
	ENTER(ON(stream), (u64)dst, src, n, (u64)stream);
	if (stray(src, n)) return leave(INVALID_VALUE);
	return leave(transfer((u64)stream, HOST_SIDE, src, n, (struct op){.kind = COPY, .dst = dst, .src = (char *)src}));
}

int cuMemcpyDtoDAsync_v2(u64 dst, u64 src, size_t n, void *stream) {
	ENTER(ON(stream), dst, src, n, (u64)stream);
	if (stray(dst, n) || stray(src, n)) return leave(INVALID_VALUE);
	return leave(transfer((u64)stream, dst, src, n, (struct op){.kind = COPY, .dst = (char *)dst, .src = (char *)src}));
}

int cuMemcpyPeerAsync(u64 dst, void *to, u64 src, void *from, size_t n, void *stream) {
	ENTER(ON(stream), dst, (u64)to, src, (u64)from, n, (u64)stream);
	if (!find(CONTEXT, (u64)to) || !find(CONTEXT, (u64)from)) return leave(INVALID_CONTEXT);
	return leave(transfer((u64)stream, dst, src, n, (struct op){.kind = COPY, .dst = (char *)dst, .src = (char *)src}));
}

// ---- streams and events

int cuStreamCreate(void **stream, unsigned flags) {
	ENTER(BOUND, (u64)stream, flags);
	*stream = new_stream();
	return leave(SUCCESS);
}

int cuStreamDestroy_v2(void *stream) {
	ENTER(ON(stream), (u64)stream);
	struct object *s = find(STREAM, (u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	if (s->capture) return leave(refuse(s->capture, CAPTURE_UNSUPPORTED));
	take(s);
	return leave(SUCCESS);
}

// The ABI leaves the upper half of a register undefined that returns an int.
u64 cuStreamQuery(void *stream) {
	ENTER(ON(stream), (u64)stream);
	int code = unsafe();
	struct object *s = stream_of((u64)stream);
	if (s && s->capture) code = refuse(s->capture, CAPTURE_UNSUPPORTED);
	return 0xdeadULL << 32 | leave(code ? code : !s ? INVALID_HANDLE : s->head ? NOT_READY : SUCCESS);
}

int cuStreamSynchronize(void *stream) {
	ENTER(ON(stream), (u64)stream);
	UNSAFE();
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	if (s->capture) return leave(refuse(s->capture, CAPTURE_UNSUPPORTED));
	while (s->head) pthread_cond_wait(&moved, &lock);
	return leave(SUCCESS);
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
	ENTER(ON(stream), (u64)stream, (u64)event, flags);
	struct object *s = stream_of((u64)stream), *e = find(EVENT, (u64)event);
	if (!s || !e) return leave(INVALID_HANDLE);
	if (s->capture || e->capture) return leave(wait_captured(s, e));
	return leave(e->mark ? push(s, (struct op){.kind = WAIT, .mark = e->mark}) : SUCCESS);
}

int cuStreamIsCapturing(void *stream, int *status) {
	ENTER(ON(stream), (u64)stream, (u64)status);
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	*status = !s->capture ? 0 : s->capture->invalid ? 2 : 1;
	return leave(SUCCESS);
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
	ENTER(NOTHING, (u64)mode);
	int before = capture_mode;
	capture_mode = *mode;
	*mode = before;
	return leave(SUCCESS);
}

// fake_capture_mode is the calling thread's.
u64 fake_capture_mode(void) { return capture_mode; }

int cuStreamBeginCapture_v2(void *stream, int mode) {
	ENTER(ON(stream), (u64)stream, mode);
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	if ((u64)stream <= 1) return leave(CAPTURE_UNSUPPORTED);
	if (s->capture) return leave(ILLEGAL_STATE);
	struct capture *c = calloc(1, sizeof *c); // events may outlive it: never freed
	c->mode = mode, c->thread = pthread_self(), c->tail = &c->head, c->next = captures;
	captures = c;
	draw_in(c, s, NULL);
	return leave(SUCCESS);
}

int cuStreamEndCapture(void *stream, void **graph) {
	ENTER(ON(stream), (u64)stream, (u64)graph);
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	struct capture *c = s->capture;
	if (!c) return leave(ILLEGAL_STATE);
	if (c->streams[0] != s) return leave(refuse(c, CAPTURE_UNMATCHED));
	if (c->mode != RELAXED && !pthread_equal(c->thread, pthread_self())) return leave(CAPTURE_WRONG_THREAD);
	int joined = 1;
	for (int i = 0; i < c->n; i++) {
		if (s->reach[i] < c->counts[i]) joined = 0;
		c->streams[i]->capture = NULL;
	}
	c->ended = 1;
	if (c->invalid) return leave(CAPTURE_INVALIDATED);
	if (!joined) return leave(CAPTURE_UNJOINED);
	struct object *g = add(GRAPH, NULL);
	g->head = c->head;
	*graph = g;
	return leave(SUCCESS);
}

int cuGraphInstantiateWithFlags(void **exec, void *graph, u64 flags) {
	ENTER(BOUND, (u64)exec, (u64)graph, flags);
	struct object *g = find(GRAPH, (u64)graph);
	if (!g || flags) return leave(INVALID_VALUE);
	struct object *x = add(EXEC, NULL);
	x->head = g->head;
	*exec = x;
	return leave(SUCCESS);
}

static int destroy(enum kind kind, u64 handle) {
	struct object *o = find(kind, handle);
	if (!o) return leave(INVALID_VALUE);
	take(o);
	return leave(SUCCESS);
}

int cuGraphDestroy(void *graph) {
	ENTER(BOUND, (u64)graph);
	return destroy(GRAPH, (u64)graph);
}

int cuGraphExecDestroy(void *exec) {
	ENTER(BOUND, (u64)exec);
	return destroy(EXEC, (u64)exec);
}

int cuGraphLaunch(void *exec, void *stream) {
	ENTER(ON(stream), (u64)exec, (u64)stream);
	struct object *x = find(EXEC, (u64)exec), *s = stream_of((u64)stream);
	if (!x || !s) return leave(INVALID_HANDLE);
	if (s->capture) return leave(refuse(s->capture, CAPTURE_UNSUPPORTED)); // no child graphs here
	if (x->mark) push(s, (struct op){.kind = WAIT, .mark = x->mark});
	for (struct op *o = x->head; o; o = o->next) {
		struct op copy = *o;
		copy.next = NULL;
		push(s, copy);
	}
	x->mark = calloc(1, sizeof *x->mark);
	return leave(push(s, (struct op){.kind = RECORD, .mark = x->mark}));
}

int cuStreamGetId(void *stream, u64 *id) {
	ENTER(ON(stream), (u64)stream, (u64)id);
	struct object *s = stream_of((u64)stream);
	if (!s) return leave(INVALID_HANDLE);
	*id = s->id;
	return leave(SUCCESS);
}

int cuEventCreate(void **event, unsigned flags) {
	ENTER(BOUND, (u64)event, flags);
	struct object *e = add(EVENT, NULL);
	e->timing = !(flags & 2);
	*event = e;
	return leave(SUCCESS);
}

int cuEventDestroy_v2(void *event) {
	ENTER(EXPLICIT, (u64)event);
	struct object *e = find(EVENT, (u64)event);
	if (!e) return leave(INVALID_HANDLE);
	take(e);
	free(e);
	return leave(SUCCESS);
}

int cuEventRecord(void *event, void *stream) {
	ENTER(ON(stream), (u64)event, (u64)stream);
	struct object *s = stream_of((u64)stream), *e = find(EVENT, (u64)event);
	if (!s || !e) return leave(INVALID_HANDLE);
	e->capture = s->capture;
	memcpy(e->reach, s->reach, sizeof e->reach);
	if (s->capture) return leave(s->capture->invalid ? CAPTURE_INVALIDATED : SUCCESS);
	e->mark = calloc(1, sizeof *e->mark); // waits may outlive the event: never freed
	return leave(push(s, (struct op){.kind = RECORD, .mark = e->mark}));
}

int cuEventQuery(void *event) {
	ENTER(EXPLICIT, (u64)event);
	UNSAFE();
	struct object *e = find(EVENT, (u64)event);
	if (e && e->capture) return leave(refuse(e->capture, CAPTURED_EVENT));
	return leave(!e ? INVALID_HANDLE : e->mark && !e->mark->done ? NOT_READY : SUCCESS);
}

int cuEventSynchronize(void *event) {
	ENTER(EXPLICIT, (u64)event);
	struct object *e = find(EVENT, (u64)event);
	if (!e) return leave(INVALID_HANDLE);
	UNSAFE();
	if (e->capture) return leave(refuse(e->capture, CAPTURED_EVENT));
	for (struct mark *m = e->mark; m && !m->done;) pthread_cond_wait(&moved, &lock);
	return leave(SUCCESS);
}

int cuEventElapsedTime(float *ms, void *from, void *to) {
	ENTER(EXPLICIT, (u64)ms, (u64)from, (u64)to);
	UNSAFE();
	struct object *e[2] = {find(EVENT, (u64)from), find(EVENT, (u64)to)};
	for (int i = 0; i < 2; i++) {
		if (!e[i] || !e[i]->timing || !e[i]->mark) return leave(INVALID_HANDLE);
		if (e[i]->capture) return leave(refuse(e[i]->capture, CAPTURED_EVENT));
	}
	for (int i = 0; i < 2; i++)
		if (!e[i]->mark->done) return leave(NOT_READY);
	struct timespec a = e[0]->mark->at, b = e[1]->mark->at;
	*ms = (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6;
	return leave(SUCCESS);
}

// ---- modules and kernels

int cuModuleLoadDataEx(void **module, const char *image, unsigned n, int *options, void **values) {
	ENTER(BOUND, (u64)module, (u64)image, n, (u64)options, (u64)values);
	UNSAFE();
	if (!strstr(image, ".version")) {
		char *log = NULL;
		size_t bytes = 0;
		for (unsigned i = 0; i < n; i++) {
			if (options[i] == 5) log = values[i];
			if (options[i] == 6) bytes = (size_t)values[i];
		}
		if (log) snprintf(log, bytes, "ptxas application ptx input, line 1; fatal   : Missing .version directive\n");
		return leave(INVALID_PTX);
	}
	struct object *m = add(MODULE, NULL);
	m->text = strdup(image);
	*module = m;
	return leave(SUCCESS);
}

int cuModuleUnload(void *module) {
	ENTER(BOUND, (u64)module);
	UNSAFE();
	struct object *m = find(MODULE, (u64)module);
	if (!m) return leave(INVALID_HANDLE);
	take(m);
	return leave(SUCCESS);
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
	ENTER(BOUND, (u64)function, (u64)module, (u64)name);
	struct object *m = find(MODULE, (u64)module);
	if (!m) return leave(INVALID_HANDLE);
	if (!strstr(m->text, name)) return leave(NOT_FOUND);
	struct object *f = add(FUNCTION, NULL);
	f->text = strdup(name);
	*function = f;
	return leave(SUCCESS);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
		unsigned shared, void *stream, void **params, void **extra) {
	ENTER(ON(stream), (u64)function, gx, gy, gz, bx, by, bz, shared, (u64)stream, (u64)params, (u64)extra);
	struct object *f = find(FUNCTION, (u64)function), *s = stream_of((u64)stream);
	if (!f || !s) return leave(INVALID_HANDLE);
	if (bx > 1024 || by > 1024 || bz > 64 || bx * by * bz > 1024) return leave(INVALID_VALUE);
	struct op o = {.kind = LAUNCH, .object = f};
	int n = 0;
	if (sscanf(f->text, "fake_echo%d", &n) == 1)
		for (int i = 0; i < n; i++) echoed[i] = *(u64 *)params[i];
	if (!strcmp(f->text, "fencepost_fill")) o.args[0] = *(u64 *)params[0], o.args[1] = *(uint32_t *)params[1];
	if (!strcmp(f->text, "fencepost_fill_few"))
		for (int i = 0; i < 12; i++) o.args[i] = *(u64 *)params[i];
	if (!strcmp(f->text, "fencepost_verify") || !strcmp(f->text, "fencepost_checksum"))
		o.args[0] = *(u64 *)params[0], o.args[1] = *(u64 *)params[1], o.args[2] = *(uint32_t *)params[2];
	return leave(push(s, o));
}

// ---- pools

struct pool_props { int alloc_type, handle_types, location_type, location_id; void *security; size_t max_size; uint16_t usage; char reserved[54]; };
_Static_assert(sizeof(struct pool_props) == 88, "CUmemPoolProps has 88 bytes");

static struct object *default_pools[16];

int cuDeviceGetDefaultMemPool(void **pool, int device) {
	ENTER(NOTHING, (u64)pool, device);
	if (!default_pools[device]) {
		default_pools[device] = add(POOL, NULL);
		live[POOL]--;
	}
	*pool = default_pools[device];
	return leave(SUCCESS);
}

int cuMemPoolCreate(void **pool, const struct pool_props *p) {
	ENTER(EXPLICIT, (u64)pool, (u64)p, p->alloc_type, p->handle_types, p->location_type, p->location_id, p->max_size, p->usage);
	if (p->alloc_type != 1 || p->handle_types || p->location_type != 1 || p->security || p->usage) return leave(INVALID_VALUE);
	for (size_t i = 0; i < sizeof p->reserved; i++)
		if (p->reserved[i]) return leave(INVALID_VALUE);
	struct object *o = add(POOL, NULL);
	o->max = p->max_size;
	*pool = o;
	return leave(SUCCESS);
}

int cuMemPoolDestroy(void *pool) {
	ENTER(EXPLICIT, (u64)pool);
	struct object *p = find(POOL, (u64)pool);
	if (!p) return leave(INVALID_HANDLE);
	take(p);
	return leave(SUCCESS);
}

int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
	ENTER(EXPLICIT, (u64)pool, attribute, (u64)value);
	struct object *p = find(POOL, (u64)pool);
	if (!p) return leave(INVALID_HANDLE);
	if (attribute < 1 || attribute > 4) return leave(INVALID_VALUE);
	p->attributes[attribute] = attribute == 4 ? *(u64 *)value : (u64) * (int *)value + 1;
	return leave(SUCCESS);
}

// fake_attribute is what a pool's attribute was set to; the flags of reuse are
// one more, so that 0 says never set.
u64 fake_attribute(u64 pool, int attribute) { return find(POOL, pool)->attributes[attribute]; }

int cuMemPoolGetAttribute(void *pool, int attribute, u64 *value) {
	ENTER(EXPLICIT, (u64)pool, attribute, (u64)value);
	struct object *p = find(POOL, (u64)pool);
	if (!p) return leave(INVALID_HANDLE);
	switch (attribute) {
	case 5: *value = p->reserved; break;
	case 6: *value = p->reserved_high; break;
	case 7: *value = p->used; break;
	case 8: *value = p->used_high; break;
	default: return leave(INVALID_VALUE);
	}
	return leave(SUCCESS);
}

int cuMemPoolTrimTo(void *pool, size_t keep) {
	ENTER(EXPLICIT, (u64)pool, keep);
	UNSAFE();
	struct object *p = find(POOL, (u64)pool);
	if (!p) return leave(INVALID_HANDLE);
	if (p->reserved > keep) p->reserved = keep > p->used ? keep : p->used;
	return leave(SUCCESS);
}
