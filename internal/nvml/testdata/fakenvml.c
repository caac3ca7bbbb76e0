// A library with NVML's interface and two devices: an H200 with MIG on, which
// three processes use, and a card that answers nothing but its PCI address.
// FAKENVML=uninitialized makes it fail as it does without a kernel module.
// -DPROCESSES names the call that counts processes, as old drivers do.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

static int loaded(void) {
	const char *mode = getenv("FAKENVML");
	return mode == NULL || strcmp(mode, "uninitialized") != 0;
}

int nvmlInit_v2(void) { return loaded() ? SUCCESS : DRIVER_NOT_LOADED; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Some Error"; }

static int text(char *to, unsigned size, const char *from) {
	if (strlen(from) + 1 > size) return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, "580.95.05"); }

int nvmlDeviceGetCount_v2(unsigned *count) {
	*count = 2;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
	static int devices[2];
	*handle = &devices[index];
	devices[index] = index;
	return SUCCESS;
}

static int first(void *device) { return *(int *)device == 0; }

int nvmlDeviceGetName(void *device, char *to, unsigned size) {
	return first(device) ? text(to, size, "NVIDIA H200") : NOT_SUPPORTED;
}

int nvmlDeviceGetUUID(void *device, char *to, unsigned size) {
	return first(device) ? text(to, size, "GPU-11111111-2222-3333-4444-555555555555") : NOT_SUPPORTED;
}

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *p) {
	p->domain = 0, p->bus = first(device) ? 0x19 : 0xab, p->device = 0;
	return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
	*current = *pending = 1;
	return first(device) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *m) {
	if (!first(device)) return NOT_SUPPORTED;
	m[0] = 150754820096ULL, m[1] = 150000000000ULL, m[2] = 754820096ULL;
	return SUCCESS;
}

#ifndef PROCESSES
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v3
#endif

int PROCESSES(void *device, unsigned *count, void *infos) {
	if (!first(device)) return NOT_SUPPORTED;
	*count = 3;
	return infos == NULL ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
	if (strcmp(uuid, "GPU-11111111-2222-3333-4444-555555555555") != 0) return 6;
	return nvmlDeviceGetHandleByIndex_v2(0, handle);
}

// -DLIMITS is a driver of r615 or later. The group /limited has a limit, /free none, and others are unknown.
#ifdef LIMITS
struct limits {
	const char *group;
	unsigned long long soft, hard, used;
};

int nvmlDeviceGetMemoryLimits_v1(void *device, struct limits *l) {
	if (!loaded() || !first(device)) return NOT_SUPPORTED;
	if (strcmp(l->group, "/limited") != 0 && strcmp(l->group, "/free") != 0) return 6;
	l->soft = 1, l->hard = strcmp(l->group, "/free") == 0 ? ~0ULL : 31457280000ULL, l->used = 1000000ULL;
	return SUCCESS;
}
#endif
